// receipt/lowering.h: a tile in a TPU's matrix unit, as a receipt has it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "receipt/receipt.h"
#include "tessera/machine.h"

namespace tessera::receipt {

// `pairs` that ran, in whole tiles.
Receipt::Lowering lowering_of(const Lowering& lowering, int64_t pairs);

// The first rule that does not hold, of a receipt of the executed lane.
std::optional<std::string> lowering_contradiction(const Receipt& r,
                                                  const std::string& executed);

}  // namespace tessera::receipt
