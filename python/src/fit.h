// fit.h: the TPU memory that a call needs (`ts.fit`).
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

void bind_fit(nanobind::module_& m);

}  // namespace tessera::python
