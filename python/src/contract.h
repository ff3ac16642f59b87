// contract.h: a contract as Python sees it.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

namespace nb = nanobind;

void bind_contract(nb::module_& m);

}  // namespace tessera::python
