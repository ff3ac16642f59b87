// mask.h: the Python class Mask, and reading masks from arguments.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/mask.h"

namespace tessera::python {

namespace nb = nanobind;

// An expression as the user wrote it. mask() makes its canonical form once.
struct PyMask {
  explicit PyMask(Expr of) : expr(std::move(of)) {}

  const Mask& mask() const;  // under the GIL

  Expr expr;

 private:
  mutable std::optional<Mask> made_;
};

// `object` is a mask, its text, or a list of these, one for each group of
// heads.
std::vector<Mask> read_masks(nb::handle object);

void bind_mask(nb::module_& m);

}  // namespace tessera::python
