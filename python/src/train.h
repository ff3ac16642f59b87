// train.h: the Python class Trainer, which trains a model on packed rows.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

namespace nb = nanobind;

void bind_train(nb::module_& m);

}  // namespace tessera::python
