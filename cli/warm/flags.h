// cli/warm/flags.h: the flags of `tessera warm`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/run/flags.h"

namespace tessera::cli {

// The flags, not yet parsed.
struct WarmFlags {
  RunFlags run;
  std::optional<std::string> seeds;
  std::vector<std::string> specs;
  bool dlse = false;
};

void add_warm_flags(Command& command, WarmFlags& flags);

}  // namespace tessera::cli
