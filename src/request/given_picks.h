// request/given_picks.h: reads picks of blocks from a file.
#pragma once

#include <string>
#include <string_view>

#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera::request {

// `--picks topk_idxs:FILE`: the layout of tessera/layouts.h.
inline constexpr std::string_view kTopkSource = "topk_idxs:";

// Reads picks for a mask that names blocks(n). FILE is .safetensors with a
// tensor picks [batch, heads, q_len, k]; topk_idxs:FILE is .npy, or
// .safetensors with a tensor topk_idxs.
Result<void> read_given_picks(const std::string& source, const Request& request,
                              OwnedFacts& facts);

}  // namespace tessera::request
