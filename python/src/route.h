// route.h: batches whose picks come from the router, and programs for TPUs.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

void bind_route(nanobind::module_& m);
void bind_compile(nanobind::module_& m);

}  // namespace tessera::python
