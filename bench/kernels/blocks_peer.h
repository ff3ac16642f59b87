// bench/kernels/blocks_peer.h: PyTorch's planner of a block mask, beside
// `tessera-bench blocks`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tessera/layouts.h"

namespace tessera::bench {

struct BlocksPeer {
  std::string call;
  std::string why;  // it is not measured, or its lists are not ours
  double us = 0;    // the best run
  int64_t runs = 0;
  nlohmann::json versions = nlohmann::json::object();
};

// What else a library prints is passed over; the last line counts.
BlocksPeer parse_blocks_line(std::string_view text);
nlohmann::json to_json(const BlocksPeer& peer);

// The script of the folder on this mask of one byte a block, held to one thread
// as we are; `lists` are ours, to which it holds its own.
BlocksPeer run_blocks_peer(const std::string& folder, const BlockMask& mask,
                           const BlockLists& lists, double seconds);

}  // namespace tessera::bench
