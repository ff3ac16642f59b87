// cli/choose/machine_file.h: a machine as a JSON file, for `tessera choose`
// about one that is not here.
//
//   {"cpu": "A CPU", "threads": 8, "isas": ["portable", "avx2"],
//    "plugins": [{"name": "libtpu", "platform": "tpu", "devices": 4,
//                 "generation": "v6e"}]}
//
// A TPU's generation may be left out where it is not known.
#pragma once

#include <string_view>

#include "tessera/dispatch.h"

namespace tessera::cli {

// Larger files are refused unread.
inline constexpr int64_t kMaxMachineBytes = int64_t{1} << 20;

Result<Machine> parse_machine(std::string_view json);

}  // namespace tessera::cli
