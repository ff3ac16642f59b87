// session.h: sessions, prepared calls, and `attention` in a single call.
#pragma once

#include <nanobind/nanobind.h>

#include "tessera/machine.h"

namespace tessera::python {

void bind_session(nanobind::module_& m);

// Adds the counts to `out`, a dict of counters.
void add_compiles(const CompileCounts& counts, nanobind::dict& out);

}  // namespace tessera::python
