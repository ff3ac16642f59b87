// sink_telemetry.h: sink telemetry of a forward pass as NumPy arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "tessera/session.h"

namespace tessera::python {

namespace nb = nanobind;

// Refuses a number of first keys that is out of range.
void check_first_keys(int64_t first_keys);

// The Python object `SinkTelemetry`. The arrays of `told` are moved, not
// copied.
nb::object sink_telemetry_of(SinkTelemetry told, const Batch& batch,
                             const AttentionShape& shape);

void bind_sink_telemetry(nb::module_& m);

}  // namespace tessera::python
