// cli/gate/flags.h: the flags of `tessera gate`.
#pragma once

#include <optional>
#include <string>

#include "cli/command.h"
#include "tessera/dispatch.h"

namespace tessera::cli {

// The flags, not yet parsed.
struct GateFlags {
  std::optional<std::string> tokens, dtype, heads, head_dim, rounds, plugin,
      rows, out, artifact, shapes;
  bool quick = false;
  bool record = false;
  bool json = false;
};

// `flags` must outlive the command. --record is only added with `records`.
void add_gate_flags(Command& command, GateFlags& flags, bool records);

Result<GateSizes> read_sizes(const GateFlags& flags);

}  // namespace tessera::cli
