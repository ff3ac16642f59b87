// cli/numbers.h: numbers that flags of many commands take.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/result.h"

namespace tessera::cli {

// The largest --max-compiles.
inline constexpr int64_t kMaxCompiles = int64_t{1} << 31;

// The largest checkpoint that a command reads.
inline constexpr int64_t kMaxCheckpointBytes = int64_t{1} << 40;

// The largest --device, an index among a plugin's devices.
inline constexpr int64_t kMaxDevices = int64_t{1} << 20;
Result<uint64_t> parse_seed(std::string_view text);
Result<int64_t> parse_device(std::string_view text);

}  // namespace tessera::cli
