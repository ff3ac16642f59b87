// cli/train/flags.h: the flags of `tessera train`.
#pragma once

#include <optional>
#include <string>

#include "cli/run/plugin_flags.h"
#include "cli/spread_flags.h"

namespace tessera::cli {

struct TrainFlags : PluginFlags, SpreadFlags {
  std::string data;
  std::optional<std::string> model, spec, steps, rows, mesh, seed, dtype, tile;
  std::optional<std::string> rate, warmup, max_norm, weight_decay;
  std::optional<std::string> checkpoint, every, resume, program, picture,
      receipt;
  std::optional<std::string> target, lowering_reason, max_compiles;
  bool recompute = false;
  bool compile_only = false, warm = false;
  bool json = false;
};

void add_train_flags(Command& command, TrainFlags& flags);

}  // namespace tessera::cli
