// receipt/sink_contradictions.h: what must hold of a receipt's sink telemetry.
#pragma once

#include <optional>
#include <string>

#include "receipt/receipt.h"

namespace tessera::receipt {

// The first rule that does not hold, of a receipt of the executed lane.
std::optional<std::string> sink_contradiction(const Receipt& r,
                                              const std::string& executed);

}  // namespace tessera::receipt
