// request/spec.h: a request as a JSON file, its fields named as the flags.
//
//   {"mask": "causal & documents",          or ["causal", "full"], one a group
//    "q_len": 32768, "kv_len": 32768, "batch": 2, "q_offset": 0,  or [0, 128]
//    "tile": [256, 256],                    or "256x256"; logical_block too
//    "docs": "lognormal:mean=2048,seed=0",  any text --docs takes; q_docs too
//    "valid": [1000, 2000],                 or one or more texts as of --valid
//    "prefix": [16, 32],                    or 16, or "16,32"
//    "picks": "picks.safetensors", "tree": "random", "same": ["a=ids.npy"],
//    "target": "v6e", "max_steps": 4096, "max_width": 64, "max_union": 12}
//
// Every field may be absent; an unknown one is an error.
#pragma once

#include <string>
#include <string_view>

#include "receipt/request_fields.h"
#include "tessera/result.h"

namespace tessera::request {

// Larger spec files are refused unread.
inline constexpr int64_t kMaxSpecBytes = int64_t{1} << 24;

Result<receipt::RequestText> parse_spec(std::string_view text);
Result<receipt::RequestText> load_spec(const std::string& path);

}  // namespace tessera::request
