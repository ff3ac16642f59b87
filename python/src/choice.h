// choice.h: the Python class Choice, a choice of a lane.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

void bind_choice(nanobind::module_& m);

}  // namespace tessera::python
