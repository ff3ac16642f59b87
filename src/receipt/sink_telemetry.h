// receipt/sink_telemetry.h: what a receipt says of sink telemetry.
#pragma once

#include "receipt/receipt.h"
#include "tessera/session.h"

namespace tessera::receipt {

// Documents that a receipt can hold: of a head each takes 92 bytes at most, and
// 169 of its own.
inline constexpr int64_t max_sink_documents(int64_t heads) {
  return (int64_t{1} << 17) / (heads + 2);
}

Receipt::SinkTelemetry sink_telemetry_of(const SinkTelemetry& told);

}  // namespace tessera::receipt
