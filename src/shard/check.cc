// shard/check.cc: refuses meshes, options and batches that do not fit together.
#include "shard/check.h"

#include <tuple>
#include <utility>

#include "base/dtype_word.h"
#include "base/fail.h"
#include "base/integers.h"
#include "base/text.h"

namespace tessera {

std::string_view to_string(Balance balance) {
  switch (balance) {
    case Balance::contiguous:
      return "contiguous";
    case Balance::headtail:
      return "headtail";
    case Balance::rows:
      return "rows";
    case Balance::tasks:
      return "tasks";
  }
  return "?";
}

std::string_view to_string(TileExchange exchange) {
  switch (exchange) {
    case TileExchange::rounds:
      return "rounds";
    case TileExchange::ragged:
      return "ragged";
    case TileExchange::gather:
      return "gather";
    case TileExchange::automatic:
      return "auto";
  }
  return "?";
}

namespace shard {
namespace {

Result<void> check_one(std::string_view what, int64_t n, int64_t least,
                       int64_t most) {
  if (n >= least && n <= most) return {};
  return invalid("shard", "{} must be between {} and {}, found {}", what, least,
                 most, n);
}

Result<void> check_ratio(std::string_view what, double x) {
  if (x >= 1 && x <= kMaxEvenness) return {};  // refuses NaN too
  return invalid("shard", "{} must be between 1 and {}, found {}", what,
                 kMaxEvenness, x);
}

Result<void> check_divides(std::string_view axis, int64_t devices,
                           std::string_view what, int64_t n, bool uneven) {
  if (uneven || n % devices == 0) return {};
  return invalid("shard",
                 "an axis must divide what it splits, found {}={} for {} {} "
                 "(uneven pads them)",
                 axis, devices, n, what);
}

}  // namespace

Result<void> check_mesh(const Mesh& mesh) {
  auto read = parse_mesh(to_string(mesh));
  if (!read) return read.error();
  return {};
}

Result<void> check_options(const ShardOptions& o) {
  const AttentionShape& s = o.shape;
  for (const auto& [what, n, most] :
       {std::tuple{"heads", s.heads, kMaxHeads},
        std::tuple{"kv_heads", s.kv_heads, kMaxHeads},
        std::tuple{"head_dim", s.head_dim, kMaxHeadDim},
        std::tuple{"v_head_dim", s.v_head_dim, kMaxHeadDim},
        std::tuple{"work.partial", o.work.partial, kMaxTileWork},
        std::tuple{"work.full", o.work.full, kMaxTileWork}}) {
    if (auto e = check_one(what, n, 1, most); !e) return e;
  }
  if (s.heads % s.kv_heads != 0) {
    return invalid("shard", "kv_heads must divide heads, found {} for {}",
                   s.kv_heads, s.heads);
  }
  if (o.dtype != Dtype::f32 && o.dtype != Dtype::bf16 &&
      o.dtype != Dtype::f16) {
    return invalid("shard", "dtype must be f32, bf16 or f16, found {}",
                   dtype_word(o.dtype));
  }
  if (auto e = check_ratio("evenness.work", o.evenness.work); !e) return e;
  if (auto e = check_ratio("evenness.tokens", o.evenness.tokens); !e) return e;
  for (const auto& [what, n] :
       {std::pair{"ceilings.rows", o.ceilings.rows},
        std::pair{"ceilings.steps", o.ceilings.steps}}) {
    if (auto e = check_one(what, n, 0, kMaxTiles); !e) return e;
  }
  if (!o.ceilings.q_rounds.empty() && o.balance != Balance::tasks) {
    return invalid("shard", "ceilings of q go with balance tasks, found {}",
                   to_string(o.balance));
  }
  if (o.balance > Balance::tasks) {
    return invalid("shard", "balance must be one of four, found number {}",
                   static_cast<int>(o.balance));
  }
  if (o.exchange > TileExchange::automatic) {
    return invalid("shard", "exchange must be one of four, found number {}",
                   static_cast<int>(o.exchange));
  }
  return {};
}

Result<void> check_fit(const Batch& batch, const Mesh& mesh,
                       const ShardOptions& o) {
  const Plan& plan = batch.plan();
  if (o.shape.heads % plan.heads != 0) {
    return invalid("shard",
                   "heads must be a multiple of the plan's, found {} for {}",
                   o.shape.heads, plan.heads);
  }
  const int64_t data = mesh.size("data");
  const int64_t head = mesh.size("head");
  if (auto e = check_divides("data", data, "batch rows", plan.batch, o.uneven);
      !e) {
    return e;
  }
  if (auto e =
          check_divides("head", head, "KV heads", o.shape.kv_heads, o.uneven);
      !e) {
    return e;
  }
  // The number of counts, one for each shard and column.
  const double counts = static_cast<double>(mesh.size("seq")) *
                        static_cast<double>(ceil_div(plan.batch, data)) *
                        static_cast<double>(plan.forward.columns);
  if (counts > static_cast<double>(kMaxTiles)) {
    return over_limit("shard",
                      "shards along seq times key tiles must be at most {}, "
                      "found {:.0f}",
                      kMaxTiles, counts);
  }
  return {};
}

}  // namespace shard

Result<Balance> parse_balance(std::string_view text) {
  for (const Balance b : {Balance::contiguous, Balance::headtail, Balance::rows,
                          Balance::tasks}) {
    if (text == to_string(b)) return b;
  }
  return invalid(
      "shard", "balance must be contiguous, headtail, rows or tasks, found {}",
      in_quotes(text));
}

Result<TileExchange> parse_tile_exchange(std::string_view text) {
  for (const TileExchange e : {TileExchange::rounds, TileExchange::ragged,
                               TileExchange::gather, TileExchange::automatic}) {
    if (text == to_string(e)) return e;
  }
  return invalid("shard",
                 "exchange must be rounds, ragged, gather or auto, found {}",
                 in_quotes(text));
}

}  // namespace tessera
