// fit.h: what a call takes of a TPU's memory.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

void bind_fit(nanobind::module_& m);

}  // namespace tessera::python
