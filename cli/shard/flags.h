// cli/shard/flags.h: the flags of `tessera shard`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/request/flags.h"
#include "cli/spread_flags.h"
#include "tessera/shard.h"

namespace tessera::cli {

// The flags, not yet parsed.
struct ShardFlags : SpreadFlags {
  request::RequestFlags request;
  std::optional<std::string> mesh, heads, kv_heads, head_dim, v_head_dim, dtype,
      lane, emit, fit, compile, picture, lowering_reason, numbers, row_sum,
      query_chunk;
  bool backward = false;
  bool sink_logits = false;
  bool dlse = false;
};

void add_shard_flags(Command& command, ShardFlags& flags);

// Checks that there is a mesh, which flags go together, and that no file would
// overwrite another.
Result<void> check_flags(const ShardFlags& flags);

// Reads balance, dtype and sizes.
Result<ShardOptions> shard_options(const ShardFlags& flags);

}  // namespace tessera::cli
