// layouts.h: a batch's lists as other frameworks' kernels take them.
#pragma once

#include <nanobind/nanobind.h>

#include "batch.h"

namespace tessera::python {

namespace nb = nanobind;

void bind_layouts(nb::module_& m, nb::class_<PyBatch>& batch);

}  // namespace tessera::python
