// bench/recompile/settings.cc: reads and checks the flags.
#include "bench/recompile/settings.h"

#include "base/fail.h"
#include "base/text.h"
#include "bench/harness/flags.h"
#include "cli/given_flags.h"
#include "cli/numbers.h"
#include "request/numbers.h"

namespace tessera::bench {

using cli::parse_device;
using cli::parse_seed;
using request::parse_int;
using request::parse_positive;

namespace {

// Programs compiled ahead of time neither run nor are cached, so lane mosaic
// takes no flags about that.
Result<LaneId> read_lane(const RecompileFlags& o) {
  if (o.lane == "xla") {
    if (!o.target) return LaneId::xla;
    return invalid("cli", "--target goes with --lane mosaic, found it alone");
  }
  if (o.lane != "mosaic") {
    return invalid("cli", "--lane must be xla or mosaic, found {}",
                   in_quotes(o.lane));
  }
  const auto of_a_run =
      cli::first_given({{"--device", o.device.has_value()},
                        {"--cache", o.cache.has_value()},
                        {"--max-compiles", o.max_compiles.has_value()},
                        {"--cold", o.cold},
                        {"--peers", o.peers.has_value()},
                        {"--peer-limit", o.peer_limit.has_value()}});
  if (of_a_run.empty()) return LaneId::mosaic;
  return invalid("cli", "--lane mosaic runs nothing, found {} beside it",
                 of_a_run);
}

// A dim and a tile that the kernel has; the tile fills any TPU's matrix unit.
void take_kernel_sizes(RecompileSettings& s) {
  s.shape.head_dim = s.shape.v_head_dim = 128;
  s.sizes.tile = 256;
}

}  // namespace

Result<RecompileSettings> read_settings(const RecompileFlags& o) {
  RecompileSettings s;
  auto batches = parse_int(o.batches, "--batches", 1, 1'000'000);
  if (!batches) return batches.error();
  auto tokens = parse_int(o.tokens, "--tokens", 128, 1 << 16);
  if (!tokens) return tokens.error();
  auto seed = parse_seed(o.seed);
  if (!seed) return seed.error();
  auto lane = read_lane(o);
  if (!lane) return lane.error();
  auto device = parse_device(o.device.value_or("0"));
  if (!device) return device.error();
  auto compiles =
      parse_int(o.max_compiles.value_or("0"), "--max-compiles", 0, INT64_MAX);
  if (!compiles) return compiles.error();
  auto limit = parse_positive(o.peer_limit.value_or("600"), "--peer-limit");
  if (!limit) return limit.error();
  if (o.dtype != "f32" && o.dtype != "bf16") {
    return invalid("cli", "--dtype must be f32 or bf16, found {}",
                   in_quotes(o.dtype));
  }
  if (auto e = check_peers(o.peers); !e) return e.error();
  if (auto e = check_cache(o.cache); !e) return e.error();
  if (auto e = check_result(o.out); !e) return e.error();
  s.batches = *batches;
  s.sizes.tokens = *tokens;
  s.shape.heads = 4;
  s.shape.kv_heads = 2;
  s.shape.head_dim = s.shape.v_head_dim = 32;
  s.dtype = o.dtype == "f32" ? Dtype::f32 : Dtype::bf16;
  s.seed = *seed;
  s.lane = *lane;
  s.target = o.target.value_or("v6e:1x1");
  if (s.lane == LaneId::mosaic) take_kernel_sizes(s);
  s.xla.plugin =
      o.plugin.value_or(s.lane == LaneId::mosaic ? "libtpu" : "xla_cpu_pjrt");
  s.xla.device = *device;
  s.xla.max_compiles = *compiles;
  s.xla.cache_folder = o.cache.value_or("");
  s.peer_limit = *limit;
  return s;
}

}  // namespace tessera::bench
