// sink_telemetry.h: where the attention of a forward pass went, as NumPy
// arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "tessera/session.h"

namespace tessera::python {

namespace nb = nanobind;

// Refuses what no call may ask for, before any work.
void check_first_keys(int64_t first_keys);

// A `SinkTelemetry` of Python, which copies nothing of its queries again.
nb::object sink_telemetry_of(SinkTelemetry told, const Batch& batch,
                             const AttentionShape& shape);

void bind_sink_telemetry(nb::module_& m);

}  // namespace tessera::python
