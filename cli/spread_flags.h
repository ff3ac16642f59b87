// cli/spread_flags.h: how a batch is spread over devices, as typed.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/shard.h"

namespace tessera::cli {

struct SpreadFlags {
  std::optional<std::string> balance, exchange, ceilings, work, evenness;
  bool uneven = false;

  // The first that was given, as "--balance"; "" where none was.
  std::string_view given() const;
  // Those that were given, in place of `open`.
  ShardWords words(ShardWords open = {}) const;
};

}  // namespace tessera::cli
