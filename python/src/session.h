// session.h: sessions, what they prepare, and one call from end to end.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

void bind_session(nanobind::module_& m);

}  // namespace tessera::python
