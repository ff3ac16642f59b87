// bench/kernels/blocks_peer.h: PyTorch's planner of a block mask, the peer of
// `tessera-bench blocks`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tessera/layouts.h"

namespace tessera::bench {

struct BlocksPeer {
  std::string call;
  std::string
      why;        // why it is not measured, or that its lists differ from ours
  double us = 0;  // of the best run
  int64_t runs = 0;
  nlohmann::json versions = nlohmann::json::object();
};

// Reads the last line that is a measurement; other output is skipped.
BlocksPeer parse_blocks_line(std::string_view text);
nlohmann::json to_json(const BlocksPeer& peer);

// Runs the script in `folder` on this mask of one byte a block, on one thread
// as ours. The script compares its lists to `lists`, which are ours.
BlocksPeer run_blocks_peer(const std::string& folder, const BlockMask& mask,
                           const BlockLists& lists, double seconds);

}  // namespace tessera::bench
