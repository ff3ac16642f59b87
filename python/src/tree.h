// tree.h: sequences packed as one prefix tree.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

namespace nb = nanobind;

void bind_tree(nb::module_& m);

}  // namespace tessera::python
