// session.h: sessions, what they prepare, and one call from end to end.
#pragma once

#include <nanobind/nanobind.h>

#include "tessera/machine.h"

namespace tessera::python {

void bind_session(nanobind::module_& m);

// In the dict of a trainer's, of warming's or of a pass's counters.
void add_compiles(const CompileCounts& counts, nanobind::dict& out);

}  // namespace tessera::python
