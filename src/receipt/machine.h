// receipt/machine.h: what the operating system says about this machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/result.h"

namespace tessera::receipt {

std::string cpu_model();  // "unknown" if the system does not say

// The CPU's model and all its features, as text. Code that was compiled for
// this CPU depends on them. Empty if the system does not say.
std::string cpu_identity();

// Bytes that this process can allocate without swapping and within its own
// limit (`ulimit -v`); INT64_MAX if neither is known.
int64_t available_memory();

// Whether `what`, "the arrays", fits the free memory. `bytes` is a double, as
// sizes from untrusted input may overflow an integer.
Result<void> check_free(
    std::string_view where, double bytes, std::string_view what,
    double available = static_cast<double>(available_memory()));

}  // namespace tessera::receipt
