// receipt/lowering.h: a receipt's account of a tile in a TPU's matrix unit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "receipt/receipt.h"
#include "tessera/machine.h"

namespace tessera::receipt {

// `pairs` that ran are rounded up to whole tiles.
Receipt::Lowering lowering_of(const Lowering& lowering, int64_t pairs);

// The first rule about `lowering` that a receipt of lane `executed` breaks.
std::optional<std::string> lowering_contradiction(const Receipt& r,
                                                  const std::string& executed);

}  // namespace tessera::receipt
