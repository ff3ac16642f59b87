// frameworks.h: what `tessera.jax` and `tessera.torch` are made of.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

// A batch as plain arrays, and attention from them.
void bind_frameworks(nanobind::module_& m);

// The handlers of XLA, where the build had their header.
void bind_jax(nanobind::module_& m);

}  // namespace tessera::python
