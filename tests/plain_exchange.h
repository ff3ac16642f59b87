// tests/plain_exchange.h: ragged exchanges as ops that CPUs have.
#pragma once

#include <string>
#include <string_view>

namespace tessera::testing {

// The program with all-gathers and selects in place of its ragged exchanges,
// which XLA has for TPUs alone. Where a device is told of other sizes than it
// is sent, what it gets is NaN.
std::string with_plain_exchanges(std::string_view program);

}  // namespace tessera::testing
