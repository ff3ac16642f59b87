// frameworks.h: what `tessera.jax` and `tessera.torch` are made of.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

// A batch as plain arrays, and the handlers of XLA that take them, where the
// build had their header.
void bind_frameworks(nanobind::module_& m);

// What PyTorch's operators call, and what a FlexAttention mask is made of.
void bind_torch(nanobind::module_& m);
void bind_mask_parts(nanobind::module_& m);

}  // namespace tessera::python
