// cli/export/flags.h: the flags of `tessera export`.
#pragma once

#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/compile/kernel_flags.h"
#include "cli/request/flags.h"

namespace tessera::cli {

// The flags, not yet parsed.
struct ExportFlags : KernelSizes {
  request::RequestFlags request;
  std::optional<std::string> layout, out, batch_row, heads, q_shards,
      max_blocks, keys_per_query, head_dim, v_head_dim, lowering_reason,
      numbers;
  bool dkv = false;
  bool no_shrink = false;
  bool computable = false;
  bool no_mask_blocks = false;
  bool backward = false;
  bool sink_telemetry = false;
  bool json = false;
};

// `flags` must outlive the command.
void add_export_flags(Command& command, ExportFlags& flags);

}  // namespace tessera::cli
