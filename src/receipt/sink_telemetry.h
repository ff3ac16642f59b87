// receipt/sink_telemetry.h: what a receipt says of sink telemetry.
#pragma once

#include "receipt/receipt.h"
#include "tessera/session.h"

namespace tessera::receipt {

// Documents times heads that a receipt can hold.
inline constexpr int64_t kMaxSinkDocuments = int64_t{1} << 17;

Receipt::SinkTelemetry sink_telemetry_of(const SinkTelemetry& told);

}  // namespace tessera::receipt
