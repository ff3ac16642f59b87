// frameworks.h: the C++ functions that `tessera.jax` and `tessera.torch` call.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

// A batch as plain arrays, and the XLA handlers that take them, if the build
// had XLA's header.
void bind_frameworks(nanobind::module_& m);

// The calls of PyTorch's operators, and the parts of a FlexAttention mask.
void bind_torch(nanobind::module_& m);
void bind_mask_parts(nanobind::module_& m);

}  // namespace tessera::python
