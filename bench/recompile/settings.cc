// bench/recompile/settings.cc: flags, checked.
#include "bench/recompile/settings.h"

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "bench/harness/flags.h"
#include "cli/numbers.h"

namespace tessera::bench {

using cli::parse_device;
using cli::parse_int;
using cli::parse_positive;
using cli::parse_seed;

Result<RecompileSettings> read_settings(const RecompileFlags& o) {
  RecompileSettings s;
  auto batches = parse_int(o.batches, "--batches", 1, 1'000'000);
  if (!batches) return batches.error();
  auto tokens = parse_int(o.tokens, "--tokens", 128, 1 << 16);
  if (!tokens) return tokens.error();
  auto seed = parse_seed(o.seed);
  if (!seed) return seed.error();
  auto device = parse_device(o.device);
  if (!device) return device.error();
  auto compiles = parse_int(o.max_compiles, "--max-compiles", 0, INT64_MAX);
  if (!compiles) return compiles.error();
  auto limit = parse_positive(o.peer_limit, "--peer-limit");
  if (!limit) return limit.error();
  if (o.dtype != "f32" && o.dtype != "bf16") {
    return invalid("cli", "--dtype must be f32 or bf16, found {}",
                   in_quotes(o.dtype));
  }
  if (auto e = check_peers(o.peers); !e) return e.error();
  if (auto e = check_cache(o.cache); !e) return e.error();
  if (o.out) {
    if (auto e = check_output(*o.out); !e) return e.error();
  }
  s.batches = *batches;
  s.sizes.tokens = *tokens;
  s.shape.heads = 4;
  s.shape.kv_heads = 2;
  s.shape.head_dim = s.shape.v_head_dim = 32;
  s.dtype = o.dtype == "f32" ? Dtype::f32 : Dtype::bf16;
  s.seed = *seed;
  s.xla.plugin = o.plugin;
  s.xla.device = *device;
  s.xla.max_compiles = *compiles;
  s.xla.cache_folder = o.cache.value_or("");
  s.peer_limit = *limit;
  return s;
}

}  // namespace tessera::bench
