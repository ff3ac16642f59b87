// cli/run/flags.h: the flags of `tessera run`.
#pragma once

#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/request/flags.h"
#include "cli/route/flags.h"
#include "cli/run/plugin_flags.h"
#include "cli/spread_flags.h"

namespace tessera::cli {

inline constexpr const char* kSessionNumbersHelp =
    "Numbers that lane mosaic may read: any, or finite, which promises that no "
    "NaN or infinity is read and saves cycles [any]";
Result<RowSum> read_row_sum(const std::optional<std::string>& text);
inline constexpr const char* kRowSumHelp =
    "Row sum of our TPU kernel's probabilities: exact, or of rounded ones, as "
    "their product takes them [exact]";

// The flags, not yet parsed.
struct RunFlags : PluginFlags, SpreadFlags {
  request::RequestFlags request;
  request::RouteFlags route;
  std::optional<std::string> heads, kv_heads, head_dim, v_head_dim, dtype,
      layout, scale, softcap, lane, fallback, gate, threads, isa, mesh, method,
      max_compiles, artifact, shapes, sink_telemetry, seed, inputs, outputs,
      receipt, trace, lowering_reason, numbers, row_sum;
  bool sink_logits = false;
  bool backward = false;
  bool check = false;
  bool json = false;
};

// add_shape_flags() adds the flags of the request and the arrays;
// add_run_flags() adds those and the flags of a run.
void add_shape_flags(Command& command, RunFlags& flags, const char* dtypes,
                     const char* target_help = nullptr);
void add_mesh_flags(Command& command, RunFlags& flags,
                    const char* group = kOptionsGroup);
void add_run_flags(Command& command, RunFlags& flags);

}  // namespace tessera::cli
