// receipt/machine.h: what the operating system says about this machine.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

std::string cpu_model();  // "unknown" where it does not say

// Bytes that can be had without swapping; INT64_MAX where it does not say.
int64_t available_memory();

}  // namespace tessera
