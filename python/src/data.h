// data.h: packed rows and their loader.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

namespace nb = nanobind;

void bind_data(nb::module_& m);  // Loader

}  // namespace tessera::python
