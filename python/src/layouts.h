// layouts.h: a batch's lists in the layouts of other frameworks' kernels.
#pragma once

#include <nanobind/nanobind.h>

#include "batch.h"

namespace tessera::python {

namespace nb = nanobind;

void bind_layouts(nb::module_& m, nb::class_<PyBatch>& batch);

}  // namespace tessera::python
