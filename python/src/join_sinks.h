// join_sinks.h: sink logits that take their share behind attention, and back.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

void bind_join_sinks(nanobind::module_& m);

}  // namespace tessera::python
