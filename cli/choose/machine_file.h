// cli/choose/machine_file.h: a machine as a JSON file, so that `tessera choose`
// can choose for another machine.
//
//   {"cpu": "A CPU", "threads": 8, "isas": ["portable", "avx2"],
//    "plugins": [{"name": "libtpu", "platform": "tpu", "devices": 4,
//                 "generation": "v6e"}]}
//
// The generation of TPUs may be left out if it is unknown.
#pragma once

#include <string_view>

#include "tessera/dispatch.h"

namespace tessera::cli {

// Larger files are refused without reading them.
inline constexpr int64_t kMaxMachineBytes = int64_t{1} << 20;

Result<Machine> parse_machine(std::string_view json);

}  // namespace tessera::cli
