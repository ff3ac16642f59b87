// join_sinks.h: sink logits joined to results after attention, and the
// gradients.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

void bind_join_sinks(nanobind::module_& m);

}  // namespace tessera::python
