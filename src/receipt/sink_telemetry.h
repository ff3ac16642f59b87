// receipt/sink_telemetry.h: what a receipt says of sink telemetry.
#pragma once

#include "receipt/receipt.h"
#include "tessera/session.h"

namespace tessera::receipt {

// The most documents that a receipt can hold. A document takes at most 169
// bytes and 92 more for each head, so all stay below kMaxReceiptBytes.
inline constexpr int64_t max_sink_documents(int64_t heads) {
  return (int64_t{1} << 17) / (heads + 2);
}

Receipt::SinkTelemetry sink_telemetry_of(const SinkTelemetry& told);

}  // namespace tessera::receipt
