// cli/numbers.h: numbers and parts out of flag text, with errors that name the
// flag.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera::cli {

// `what` is how errors call the value: "--q-len".
Result<int64_t> parse_int(std::string_view text, std::string_view what,
                          int64_t least, int64_t most);
Result<double> parse_positive(std::string_view text, std::string_view what);

// Of --max-compiles.
inline constexpr int64_t kMaxCompiles = int64_t{1} << 31;

// Of a checkpoint that a command reads.
inline constexpr int64_t kMaxCheckpointBytes = int64_t{1} << 40;

// Of --seed and of --device, a number among a plugin's devices.
inline constexpr int64_t kMaxDevices = int64_t{1} << 20;
Result<uint64_t> parse_seed(std::string_view text);
Result<int64_t> parse_device(std::string_view text);

// "1,2,3"
Result<std::vector<int32_t>> parse_ints(std::string_view text,
                                        std::string_view what, int64_t least,
                                        int64_t most);

std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
// Whether it was there; then `text` is what follows.
bool take_prefix(std::string_view& text, std::string_view prefix);

}  // namespace tessera::cli
