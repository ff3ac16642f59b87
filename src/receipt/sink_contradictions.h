// receipt/sink_contradictions.h: checks a receipt's sink telemetry.
#pragma once

#include <optional>
#include <string>

#include "receipt/receipt.h"

namespace tessera::receipt {

// The first rule about telemetry that a receipt of lane `executed` breaks.
std::optional<std::string> sink_contradiction(const Receipt& r,
                                              const std::string& executed);

}  // namespace tessera::receipt
