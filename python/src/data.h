// data.h: the Python class Loader, which packs rows.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

namespace nb = nanobind;

void bind_data(nb::module_& m);

}  // namespace tessera::python
