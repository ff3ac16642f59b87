// mask.h: masks as Python builds them, and what else takes them.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/mask.h"

namespace tessera::python {

namespace nb = nanobind;

// As it was written; the library brings it to canonical form, once.
struct PyMask {
  explicit PyMask(Expr of) : expr(std::move(of)) {}

  const Mask& mask() const;  // under the GIL

  Expr expr;

 private:
  mutable std::optional<Mask> made_;
};

// One mask, its text, or a list of either: one for each group of heads.
std::vector<Mask> read_masks(nb::handle object);

void bind_mask(nb::module_& m);

}  // namespace tessera::python
