// receipt/machine.h: what the operating system says about this machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/result.h"

namespace tessera::receipt {

std::string cpu_model();  // "unknown" where it does not say

// What code that a compiler made for this very CPU depends on: its model and
// all its features, as text; empty where the system does not say.
std::string cpu_identity();

// Bytes that this process can have without swapping and within its own limit
// (`ulimit -v`); INT64_MAX where nothing is said.
int64_t available_memory();

// Whether `what`, "the arrays", fits the memory that is free. As a double:
// sizes that strangers gave may be absurd.
Result<void> check_free(
    std::string_view where, double bytes, std::string_view what,
    double available = static_cast<double>(available_memory()));

}  // namespace tessera::receipt
