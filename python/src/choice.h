// choice.h: a choice of a lane as Python sees it.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

void bind_choice(nanobind::module_& m);

}  // namespace tessera::python
