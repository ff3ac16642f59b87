// cli/shard/report.h: shards as text and JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "cli/command.h"
#include "cli/shard/program.h"
#include "fit/mesh_arrays.h"
#include "tessera/shard.h"

namespace tessera::cli {

struct ShardRun {
  Shards shards;
  ShardOptions options;
  // Time from facts to all shards, measured once; for a saved plan without the
  // planning.
  int64_t plan_ns = 0;
  bool saved_plan = false;
  std::optional<ProgramReport> program;
  // Arrays of the pass's program; absent if the lane cannot run this batch.
  std::optional<fit::MeshArrays> arrays;
};

// `bytes` / the bytes of an all-gather.
inline double beside_all_gather(const Moved& m, int64_t bytes) {
  return m.all_gather == 0
             ? 0
             : static_cast<double>(bytes) / static_cast<double>(m.all_gather);
}

nlohmann::json shard_json(const ShardRun& run);
std::span<const JsonField> shard_json_fields();
std::string shard_text(const ShardRun& run);

}  // namespace tessera::cli
