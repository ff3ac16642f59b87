// tests/cpu_exchange.h: ragged exchanges as ops that CPUs have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/shard.h"

namespace tessera::testing {

// Bytes that all collectives of a program send; of ragged ones what they have
// room for, as only a run knows what they send.
int64_t capacity_of(const Audit& audit);

// The program with all-gathers and selects in place of its ragged exchanges,
// which XLA's CPU compiler does not have. Where a device is told of other sizes
// than it is sent, what it gets is NaN.
std::string with_cpu_exchanges(std::string_view program);

}  // namespace tessera::testing
