// train.h: a model trained on packed rows.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

namespace nb = nanobind;

void bind_train(nb::module_& m);  // Trainer

}  // namespace tessera::python
