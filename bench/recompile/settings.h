// bench/recompile/settings.h: the flags of `tessera-bench recompile`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/recompile/ragged_batches.h"
#include "tessera/attention.h"
#include "tessera/dispatch.h"
#include "tessera/machine.h"

namespace tessera::bench {

// The flags as typed.
struct RecompileFlags {
  std::string batches = "200";
  std::string tokens = "512";
  std::string dtype = "f32";
  std::string seed = "0";
  std::string lane = "xla";
  std::optional<std::string> plugin, target, device, max_compiles;
  std::optional<std::string> cache, peers, peer_limit, out;
  bool cold = false;
  bool json = false;
};

struct RecompileSettings {
  int64_t batches = 0;
  RaggedSizes sizes;
  AttentionShape shape;
  Dtype dtype = Dtype::f32;
  uint64_t seed = 0;
  LaneId lane = LaneId::xla;  // or mosaic
  std::string target;         // of lane mosaic
  XlaOptions xla;
  double peer_limit = 0;
};

Result<RecompileSettings> read_settings(const RecompileFlags& flags);

}  // namespace tessera::bench
