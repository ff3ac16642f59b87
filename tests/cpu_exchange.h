// tests/cpu_exchange.h: rewrites ragged exchanges as ops that CPUs have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/shard.h"

namespace tessera::testing {

// Bytes that all collectives of a program send. A ragged exchange counts with
// its whole room, since only a run knows what it sends.
int64_t capacity_of(const Audit& audit);

// The program with all-gathers and selects in place of ragged exchanges, which
// XLA's CPU compiler does not have. If the sizes that a device expects differ
// from those that are sent, it receives NaN.
std::string with_cpu_exchanges(std::string_view program);

}  // namespace tessera::testing
