// cli/spread_flags.h: the flags that spread a batch over devices.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/shard.h"

namespace tessera::cli {

struct SpreadFlags {
  std::optional<std::string> balance, exchange, ceilings, work, evenness;
  bool uneven = false;

  // The first flag that was given, as "--balance"; "" if none was.
  std::string_view given() const;
  // The values that were given; `open` has the others.
  ShardWords words(ShardWords open = {}) const;
};

}  // namespace tessera::cli
