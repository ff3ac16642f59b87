// contract.h: the Python class Contract.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

namespace nb = nanobind;

void bind_contract(nb::module_& m);

}  // namespace tessera::python
