// mask.h: masks as Python builds them, and what else takes them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "tessera/mask.h"

namespace tessera::python {

namespace nb = nanobind;

// As it was written; the library brings it to canonical form.
struct PyMask {
  Expr expr;
};

// One mask, its text, or a list of either: one for each group of heads.
std::vector<Mask> read_masks(nb::handle object);

void bind_mask(nb::module_& m);

}  // namespace tessera::python
