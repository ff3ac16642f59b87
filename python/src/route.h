// route.h: batches whose picks the router finds, and programs for TPUs.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

void bind_route(nanobind::module_& m);
void bind_compile(nanobind::module_& m);

}  // namespace tessera::python
