// model/spread.cc: fixes ceilings, then plans each batch within them.
#include "model/spread.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "base/text.h"
#include "lanes/lane.h"
#include "lanes/xla/planned.h"
#include "lanes/xla/shard_arrays.h"
#include "lanes/xla/shard_shape.h"
#include "model/routes.h"
#include "shard/row_shards.h"
#include "tessera/mosaic.h"

namespace tessera::model {
namespace {

ShardOptions options_of(const Spread& s, const ShardCeilings& ceilings) {
  ShardOptions out;
  out.balance = s.shards.balance;
  out.exchange = s.shards.exchange;
  out.work = s.shards.work;
  out.evenness = s.shards.evenness;
  out.shape = s.call.shape;
  out.dtype = s.call.dtype;
  out.ceilings = ceilings;
  return out;
}

// Facts of rows without tokens, which fit any ceiling.
struct NoTokens {
  std::vector<int32_t> ids, counts;

  explicit NoTokens(const Request& r)
      : ids(static_cast<size_t>(r.batch * r.kv_len), -1),
        counts(static_cast<size_t>(r.batch), 0) {}
  Facts facts() const {
    Facts out;
    out.doc_ids = ids;
    out.valid_token_counts = counts;
    return out;
  }
};

// Rounds rows of query tiles up to whole tiles of keys as well, since a shard
// has as many queries as keys.
int64_t whole_rows(const Tile& tile, int64_t rows) {
  return round_up(rows * tile.q, std::lcm(tile.q, tile.kv)) / tile.q;
}

// Fills in the ceilings that are not given, with room for every batch.
Result<ShardCeilings> closed(const Spread& s, const Request& request,
                             ShardCeilings out) {
  const Tile& tile = request.tile;
  const NoTokens none(request);
  auto batch = BorrowedBatch::make(request, none.facts());  // checks the tile
  if (!batch) return batch.error();
  if (out.rows < 0 || out.rows > kMaxTiles) {
    return invalid("train", "the ceiling of rows must be 0 to {}, found {}",
                   kMaxTiles, out.rows);
  }
  if (out.rows != whole_rows(tile, out.rows)) {
    return invalid("train",
                   "the ceiling of rows must be whole tiles of keys too, found "
                   "{} rows of {} for {}",
                   out.rows, tile.q, tile.kv);
  }
  // A device's tokens must be whole tiles of queries and whole tiles of keys.
  if (request.kv_len % std::lcm(tile.q, tile.kv) != 0 && tile.q != tile.kv) {
    return invalid("train",
                   "tokens of a row must be whole tiles of queries and of keys "
                   "where these differ, found {} for {}x{}",
                   request.kv_len, tile.q, tile.kv);
  }
  if (out.rows == 0) {
    auto shards = make_shards(*batch, s.mesh, options_of(s, {}));
    if (!shards) return shards.error();
    out.rows = whole_rows(tile, shards->shapes.own_rows);
  }
  const int64_t columns = out.rows * tile.q / tile.kv;
  const auto shifts = static_cast<size_t>(s.mesh.size(kSeqAxis) - 1);
  if (out.kv_rounds.empty()) out.kv_rounds.assign(shifts, columns);
  const bool tasks = s.shards.balance == Balance::tasks;
  if (tasks && out.q_rounds.empty()) out.q_rounds.assign(shifts, out.rows);
  if (out.steps == 0) {
    const auto sum = [](const std::vector<int64_t>& all, int64_t own) {
      return std::accumulate(all.begin(), all.end(), own);
    };
    // Steps: each row with all columns, and one for each column without a row.
    out.steps =
        sum(out.q_rounds, out.rows) * ceil_div(request.kv_len, tile.kv) +
        sum(out.kv_rounds, columns);
  }
  return out;
}

// Tells the user of a batch that does not fit what to change.
Error named(Error e, const ShardCeilings& ceilings) {
  if (e.kind == ErrorKind::limit && ceilings.rows > 0) {
    e.message += " (give other ceilings)";
  }
  return e;
}

}  // namespace

Result<void> check_spread(const TrainOptions& o) {
  const bool kernels = has_kernels(o.spec);
  if (!o.shards && kernels && o.mesh.size(kSeqAxis) > 1) {
    return invalid("train",
                   "the axis {} of the spec {} takes an exchange of rounds or "
                   "ragged, found gather for {}",
                   kSeqAxis, o.spec.name, in_quotes(to_string(o.mesh)));
  }
  if (!o.shards) return {};
  const std::string_view exchange = to_string(o.shards->exchange);
  if (o.shards->exchange > TileExchange::ragged) {
    return invalid("train",
                   "shards must have an exchange of rounds or ragged, found {}",
                   exchange);
  }
  if (o.spec.of(Slot::attention) != "worklist" && !kernels) {
    return invalid("train",
                   "an exchange of {} is of the specs xla and tpu, found {} "
                   "(which takes gather)",
                   exchange, o.spec.name);
  }
  if (o.mesh.size(kSeqAxis) == 1) {
    return invalid("train",
                   "an exchange of {} goes with an axis {} of two devices or "
                   "more, found '{}'",
                   exchange, kSeqAxis, to_string(o.mesh));
  }
  for (const LayerRoute& route : o.model.routes) {
    if (route.top == 0) continue;
    return invalid("train",
                   "a clustered layer pools keys in their order, so that it "
                   "takes the exchange gather, found {}",
                   exchange);
  }
  return {};
}

Result<Spread> make_spread(const Mesh& mesh, const TrainShards& shards,
                           const AttentionCall& call,
                           const std::vector<Request>& requests) {
  Spread out = {mesh, shards, call};
  const size_t given = shards.ceilings.size();
  if (given > 1 && given != requests.size()) {
    return invalid("train",
                   "ceilings must be of one mask or of each of {}, found {}",
                   requests.size(), given);
  }
  out.shards.ceilings.clear();
  for (size_t i = 0; i < requests.size(); ++i) {
    ShardCeilings some;
    if (given > 0) some = shards.ceilings[given > 1 ? i : 0];
    auto whole = closed(out, requests[i], std::move(some));
    if (!whole) return whole.error();
    if (i > 0 && whole->rows != out.shards.ceilings[0].rows) {
      return invalid("train",
                     "ceilings of all masks must have the same rows, found {} "
                     "for {}",
                     whole->rows, out.shards.ceilings[0].rows);
    }
    out.shards.ceilings.push_back(std::move(*whole));
  }
  return out;
}

namespace {

// The shards of a batch without tokens; their contract holds for all batches.
struct EmptyShards {
  BorrowedBatch batch;
  Shards shards;
};

Result<AttentionPlace> kernel_place(const Spread& s, const EmptyShards& none,
                                    const std::string& target,
                                    const std::optional<std::string>& reason) {
  std::array<mosaic::ShardKernel, 2> out;
  for (const bool backward : {false, true}) {
    auto fitted = mosaic::fit_shards(
        none.batch, none.shards, lanes::one_direction(s.call, backward), target,
        {.lowering_reason = reason, .numbers = Numbers::finite});
    if (!fitted) return fitted.error();
    out[backward ? 1 : 0] = std::move(fitted->kernel);
  }
  AttentionPlace place;
  place.frame = out[0].frame;
  place.shard_kernels = {std::move(out[0]), std::move(out[1]),
                         xla::element_of(s.call.dtype)};
  return place;
}

Result<AttentionPlace> worklist_place(const Spread& s,
                                      const EmptyShards& none) {
  auto shape = xla::shard_shape(none.batch, none.shards, s.call, false);
  if (!shape) return shape.error();
  AttentionPlace place;
  place.shape = std::move(shape->local);
  place.frame = std::move(static_cast<xla::ShardFrame&>(*shape));
  return place;
}

}  // namespace

Result<std::vector<AttentionPlace>> spread_places(
    const Spread& spread, const std::vector<Request>& requests,
    const LayerSpec& spec, const std::string& target,
    const std::optional<std::string>& lowering_reason) {
  std::vector<AttentionPlace> out;
  for (size_t i = 0; i < requests.size(); ++i) {
    const NoTokens none(requests[i]);
    auto batch = BorrowedBatch::make(requests[i], none.facts());
    if (!batch) return batch.error();
    auto shards = make_shards(*batch, spread.mesh,
                              options_of(spread, spread.shards.ceilings[i]));
    if (!shards) {
      return named(shards.error(), spread.shards.ceilings[i]);
    }
    const EmptyShards empty = {std::move(*batch), std::move(*shards)};
    auto place = has_kernels(spec)
                     ? kernel_place(spread, empty, target, lowering_reason)
                     : worklist_place(spread, empty);
    if (!place) return place.error();
    place->prefix = fmt::format("plan{}.", i);
    out.push_back(std::move(*place));
  }
  return out;
}

namespace {

// For several masks, rows are placed where the joint work of all is even.
Result<std::vector<Shards>> spread_within(
    const Spread& s, const std::vector<BorrowedBatch>& batches,
    const std::vector<ShardCeilings>& ceilings) {
  std::vector<shard::RowShards> row_shards;
  const bool joint = batches.size() > 1 && s.shards.balance == Balance::rows;
  if (joint) {
    std::vector<const Batch*> all;
    all.reserve(batches.size());
    for (const Batch& batch : batches) all.push_back(&batch);
    row_shards =
        shard::assign_rows(all, s.mesh, options_of(s, ceilings.front()));
  }
  std::vector<Shards> out;
  for (size_t i = 0; i < batches.size(); ++i) {
    const ShardOptions options = options_of(s, ceilings[i]);
    auto made =
        joint ? shard::make_shards_at(batches[i], s.mesh, options, row_shards)
              : make_shards(batches[i], s.mesh, options);
    if (!made) return named(made.error(), ceilings[i]);
    out.push_back(std::move(*made));
  }
  return out;
}

}  // namespace

Result<std::vector<Shards>> spread_rows(
    const Spread& spread, const std::vector<BorrowedBatch>& batches) {
  return spread_within(spread, batches, spread.shards.ceilings);
}

Result<std::vector<ShardCeilings>> spread_ceilings(
    const Spread& spread, const std::vector<BorrowedBatch>& batches) {
  auto shards = spread_within(spread, batches,
                              std::vector<ShardCeilings>(batches.size()));
  if (!shards) return shards.error();
  std::vector<ShardCeilings> out;
  for (size_t i = 0; i < shards->size(); ++i) {
    ShardCeilings each = ceilings_of((*shards)[i]);
    each.rows = std::max(whole_rows((*shards)[i].tile, each.rows),
                         spread.shards.ceilings[i].rows);
    out.push_back(std::move(each));
  }
  return out;
}

size_t shard_of(const Portion& p) {
  return static_cast<size_t>(
      (p.row_part * p.head_parts + p.head_part) * p.token_parts + p.token_part);
}

namespace {

// The integers of each shard. Both directions share those of the exchange.
Result<std::vector<Integers>> kernel_integers_of(const AttentionPlace& place,
                                                 const Batch& batch,
                                                 const Shards& shards) {
  std::vector<Integers> out(shards.shards.size());
  const std::vector<xla::Argument> travel = exchange_integers(*place.frame);
  for (const bool backward : {false, true}) {
    const mosaic::ShardKernel& kernel = place.shard_kernels->of(backward);
    auto made = make_mosaic_shard_arrays(batch, shards, kernel.planned.kernel);
    if (!made) return made.error();
    for (const MosaicArray& a : *made) {
      const bool travels =
          std::ranges::find(travel, a.name, &xla::Argument::name) !=
          travel.end();
      const std::string name =
          (travels ? place.prefix : kernel_prefix(place, backward)) +
          std::string(a.name);
      const size_t each = a.values.size() / out.size();
      for (size_t s = 0; s < out.size(); ++s) {
        const auto own = std::span(a.values).subspan(s * each, each);
        out[s].emplace(name, std::vector<int32_t>(own.begin(), own.end()));
      }
    }
  }
  return out;
}

}  // namespace

Result<std::vector<Integers>> spread_integers(const AttentionPlace& place,
                                              const Batch& batch,
                                              const Shards& shards) {
  if (place.shard_kernels) return kernel_integers_of(place, batch, shards);
  auto made =
      xla::make_shard_integers({*place.frame, place.shape}, batch, shards);
  if (!made) return made.error();
  std::vector<Integers> out;
  for (xla::Integers& of_shard : *made) {
    Integers& named = out.emplace_back();
    for (auto& [name, values] : of_shard) {
      named.emplace(place.prefix + name, std::move(values));
    }
  }
  return out;
}

std::span<const int64_t> tokens_of(std::span<const int64_t> all,
                                   const Portion& p) {
  const auto parts = static_cast<size_t>(p.row_parts * p.token_parts);
  const size_t each = all.size() / parts;
  const auto at =
      static_cast<size_t>(p.row_part * p.token_parts + p.token_part);
  return all.subspan(at * each, each);
}

std::vector<int32_t> taken(const std::vector<int32_t>& all,
                           std::span<const int64_t> tokens) {
  std::vector<int32_t> out;
  out.reserve(tokens.size());
  for (const int64_t t : tokens) {
    out.push_back(t < 0 ? 0 : all[static_cast<size_t>(t)]);
  }
  return out;
}

void put_back(const std::vector<float>& part, std::span<const int64_t> tokens,
              std::vector<float>& all) {
  const size_t each = part.size() / tokens.size();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0) continue;
    std::copy_n(part.begin() + static_cast<std::ptrdiff_t>(i * each), each,
                all.begin() + tokens[i] * static_cast<int64_t>(each));
  }
}

Sent sent_by_layer(const TrainOptions& o, const Shards* shards) {
  const int64_t seq = o.mesh.size(kSeqAxis);
  // Keys and values travel in the type of products, twice if blocks are
  // recomputed; their gradients travel back in float32.
  const int64_t width = byte_width(o.precision.products);
  const int64_t there = o.recompute ? 2 : 1;
  const int64_t key = 2 * o.model.kv_heads * o.model.head_dim *
                      (there * width + byte_width(Dtype::f32));
  Sent out;
  out.all_gather = (seq - 1) * o.rows * o.tokens * key;
  out.bytes = out.all_gather;
  if (!shards) return out;
  const auto tiles = [&](const Traffic& traffic) {
    int64_t all = 0;
    for (const auto& of_shard : traffic.send) {
      for (size_t r = 0; r < of_shard.size(); ++r) {
        all += shards->exchange == TileExchange::ragged
                   ? static_cast<int64_t>(of_shard[r].size())
                   : traffic.rounds[r].capacity;
      }
    }
    // Shards of the other heads carry the same tiles, each for its own heads.
    return all / o.mesh.size(kHeadAxis);
  };
  // q and out travel in each forward pass; dout and dq in the backward pass.
  const int64_t query =
      o.model.heads * o.model.head_dim * width * (2 * there + 2);
  out.bytes = tiles(shards->kv) * shards->tile.kv * key +
              tiles(shards->q) * shards->tile.q * query;
  return out;
}

}  // namespace tessera::model
