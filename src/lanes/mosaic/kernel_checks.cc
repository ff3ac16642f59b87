// lanes/mosaic/kernel_checks.cc: limits of the kernels, each with its rule.
#include "lanes/mosaic/kernel_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "base/text.h"
#include "lanes/mosaic/kernel.h"
#include "lanes/mosaic/parts.h"
#include "lanes/mosaic/vector_memory.h"
#include "plan/topology_name.h"
#include "tessera/machine.h"

namespace tessera {
namespace {

using mosaic::kDimStep;
using mosaic::KernelShape;
using mosaic::kLanes;
using mosaic::kMaxDim;
using mosaic::kMaxScale;
using mosaic::kMaxTileSide;
using mosaic::kMinScale;

// Limit of the largest array: more than any device has, and small enough that
// products of sizes do not overflow.
constexpr int64_t kMaxArrayBytes = int64_t{1} << 40;

// "v6e" or "v6e:2x2".
bool is_target(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view chip = text.substr(0, colon);
  return chip.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789") ==
             std::string_view::npos &&
         (colon == std::string_view::npos || plan::chips_of(text));
}

// Only the bf16 forward kernel has rounded row sums.
Result<void> check_row_sum(const AttentionCall& call, RowSum row_sum) {
  if (row_sum == RowSum::exact) return {};
  if (call.backward || call.sink_telemetry) {
    return invalid("mosaic",
                   "a rounded row sum goes with forward, found it with {}",
                   call.backward ? "backward" : "sink telemetry");
  }
  if (call.dtype == Dtype::bf16) return {};
  return invalid("mosaic", "a rounded row sum goes with bf16, found {}",
                 to_string(call.dtype));
}

// Sink telemetry reads no V, so strays reach only pairs they are legal for.
Result<void> check_numbers(const AttentionCall& call, Numbers numbers) {
  if (numbers == Numbers::finite || !call.sink_telemetry) return {};
  return invalid("mosaic",
                 "sink telemetry takes no other term of numbers than finite, "
                 "found any");
}

Result<void> check_type(Dtype dtype) {
  if (dtype == Dtype::bf16 || dtype == Dtype::f32) return {};
  if (dtype != Dtype::f16) {
    return invalid("mosaic", "the type must be bf16 or f32, found {}",
                   to_string(dtype));
  }
  return invalid(
      "mosaic",
      "the type must be bf16 or f32, found {}, which libtpu takes for "
      "no kernel's arrays (cast to one of them, or take another lane)",
      to_string(dtype));
}

Result<void> check_attention(const AttentionCall& call) {
  const AttentionShape& s = call.shape;
  struct Size {
    std::string_view what;
    int64_t found;
  };
  for (const Size& n :
       {Size{"head dim", s.head_dim}, Size{"value head dim", s.v_head_dim}}) {
    if (n.found < 1 || n.found % kDimStep != 0 || n.found > kMaxDim) {
      return invalid("mosaic", "{} must be a multiple of {} up to {}, found {}",
                     n.what, kDimStep, kMaxDim, n.found);
    }
  }
  if (s.heads < 1 || s.heads > kMaxHeads) {
    return invalid("mosaic", "heads must be from 1 to {}, found {}", kMaxHeads,
                   s.heads);
  }
  if (s.kv_heads < 1 || s.heads % s.kv_heads != 0) {
    return invalid("mosaic", "kv heads must divide heads, found {} for {}",
                   s.kv_heads, s.heads);
  }
  if (auto e = check_type(call.dtype); !e) return e.error();
  if (call.dlse && !call.backward) {
    return invalid("mosaic",
                   "the log-sum-exp's gradient goes with backward, found it "
                   "with forward");
  }
  if (call.sink_telemetry && (call.backward || call.sink_logits)) {
    return invalid(
        "mosaic",
        "sink telemetry must be of a forward call without sink logits, "
        "found {}",
        call.backward ? "backward" : "sink logits");
  }
  if (s.softcap != 0 && !(s.softcap >= kMinScale && s.softcap <= kMaxScale)) {
    return invalid("mosaic", "softcap must be 0 or from {} to {}, found {}",
                   kMinScale, kMaxScale, s.softcap);
  }
  const double scale = s.scale_or_default();
  if (!(scale >= kMinScale && scale <= kMaxScale)) {
    return invalid("mosaic", "scale must be from {} to {}, found {}", kMinScale,
                   kMaxScale, scale);
  }
  return {};
}

Result<void> check_options(const MosaicOptions& o, const Tile& tile) {
  struct Range {
    std::string_view what;
    int64_t found, most;
  };
  for (const Range& r :
       {Range{"tiles a pass", o.tiles_per_pass, kMosaicMaxTilesPerPass},
        Range{"passes to fetch ahead", o.fetch_ahead, kMosaicMaxFetchAhead}}) {
    if (r.found < 1 || r.found > r.most) {
      return invalid("mosaic", "{} must be from 1 to {}, found {}", r.what,
                     r.most, r.found);
    }
  }
  for (const int64_t side : {tile.q, tile.kv}) {
    if (side % kLanes != 0 || side > kMaxTileSide) {
      return invalid("mosaic",
                     "a tile's sides must be multiples of {} up to {}, found "
                     "{}x{}",
                     kLanes, kMaxTileSide, tile.q, tile.kv);
    }
  }
  return {};
}

Result<void> check_chunk(int64_t queries, const AttentionCall& call,
                         const Tile& tile) {
  if (queries == 0) return {};
  if (!call.backward) {
    return invalid("mosaic",
                   "a chunk of queries goes with backward, found {} with {}",
                   queries, call.sink_telemetry ? "sink telemetry" : "forward");
  }
  if (queries > 0 && queries % tile.q == 0) return {};
  return invalid("mosaic",
                 "a chunk of queries must be of whole tiles of {}, found {}",
                 tile.q, queries);
}

// The kernel counts passes, heads and keys in 32 bits.
Result<void> check_counts(const KernelShape& s) {
  const int64_t passes = s.steps / s.tiles_per_pass * s.heads;
  if (passes > INT32_MAX - s.fetch_ahead) {
    return over_limit("mosaic",
                      "passes of all heads must be at most {}, found {}",
                      INT32_MAX - s.fetch_ahead, passes);
  }
  if (s.steps > INT32_MAX) {
    return over_limit("mosaic", "steps must be at most {}, found {}", INT32_MAX,
                      s.steps);
  }
  const auto width = static_cast<double>(byte_width(s.dtype));
  const auto lanes =
      static_cast<double>(round_up(std::max(s.head_dim, s.v_head_dim), kLanes));
  const double bytes = width * lanes * static_cast<double>(s.batch) *
                       static_cast<double>(s.heads) *
                       static_cast<double>(std::max(s.q_len, s.kv_len));
  if (bytes > static_cast<double>(kMaxArrayBytes)) {
    return over_limit("mosaic",
                      "an array must be at most {} bytes, found {:.3g}",
                      kMaxArrayBytes, bytes);
  }
  return {};
}

Result<void> check_scalar_memory(const KernelShape& s, bool backward,
                                 const Target& memory) {
  const int64_t words = mosaic::scalar_words_of(s, backward, memory);
  if (words <= memory.scalar_words) return {};
  return over_limit("mosaic",
                    "the scalar arrays must fit the {} words of {}, found {} "
                    "({})",
                    memory.scalar_words, memory.name, words,
                    s.page > 0 ? "with steps a page at a time: fewer batch rows"
                               : "set max_steps, or use a larger tile");
}

}  // namespace

Result<mosaic::AskedTarget> mosaic::check_asked(const AttentionCall& call,
                                                const MosaicOptions& options,
                                                const Request& request,
                                                const std::string& target) {
  if (auto e = check_row_sum(call, options.row_sum); !e) return e.error();
  if (auto e = check_numbers(call, options.numbers); !e) return e.error();
  if (auto e = check_attention(call); !e) return e.error();
  if (auto e = check_options(options, request.tile); !e) return e.error();
  if (auto e = check_chunk(options.query_chunk, call, request.tile); !e) {
    return e.error();
  }
  if (!is_target(target)) {
    return invalid("mosaic", "a target must read as v6e:1x1, found {}",
                   in_quotes(target));
  }
  auto memory = find_target(target.substr(0, target.find(':')));
  if (!memory) return memory.error();
  auto chip = find_chip(memory->name);
  if (!chip) return chip.error();
  auto lowering = lower_tile("mosaic", request.tile, request.logical_block,
                             *chip, options.lowering_reason);
  if (!lowering) return lowering.error();
  return AskedTarget{std::move(*memory), std::move(*lowering)};
}

int64_t mosaic::scalar_words_of(const KernelShape& s, bool backward,
                                const Target& memory) {
  int64_t words = 0;
  for (const Scalars& a : scalars_of(s)) {
    words += scalar_words(memory, {a.here});
  }
  if (backward && s.any_numbers)
    words += scalar_words(memory, {s.rows_at_once()});
  return words;
}

Result<void> mosaic::check_rows(const KernelShape& s) {
  const int64_t most = std::max(s.rows(), s.columns());
  if (most <= kMaxStepRows) return {};
  return over_limit("mosaic",
                    "packed steps count at most {} tile rows or columns, found "
                    "{} (use a larger tile)",
                    kMaxStepRows, most);
}

Result<void> mosaic::check_sizes(const KernelShape& shape, bool backward,
                                 const Target& memory) {
  if (auto e = check_counts(shape); !e) return e;
  return check_scalar_memory(shape, backward, memory);
}

Result<void> mosaic::check_vector_memory(int64_t bytes, const KernelShape& s,
                                         bool backward) {
  const int64_t room = vector_room(s.core_bytes, backward);
  if (bytes <= room) return {};
  const int64_t ids = s.telemetry ? 0 : vector_bytes(id_scratch(s));
  std::string hint = "fetch less far ahead, or use a smaller tile";
  if (backward && !s.in_chunks()) {
    hint =
        "dQ of a head stays there: fewer queries, or heads that share fewer "
        "keys";
  } else if (s.chunk_rows > 1) {
    hint = "dQ of a chunk stays there: a smaller one";
  } else if (ids > room / 4) {
    hint = fmt::format(
        "{} of them are the ids of a batch row's queries and keys: shorter "
        "rows{}",
        ids, ids < room ? ", or a smaller tile" : "");
  }
  return over_limit("mosaic",
                    "the scratch must fit {} bytes of vector memory, found {} "
                    "({})",
                    room, bytes, hint);
}

}  // namespace tessera
