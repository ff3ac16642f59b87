// shard/report.cc: measures the evenness of shards and their traffic.
#include <algorithm>

#include "shard/bound.h"

namespace tessera::shard {
namespace {

// Bytes of a travelling tile, forward and backward. A tile from another shard
// is not kept for the backward pass: it is sent again, and gradients are sent
// back to the owner.
struct Weights {
  int64_t kv_forward, kv_backward, q_forward, q_backward;
};

Weights weights_of(const ShardOptions& options, const Tile& tile, int64_t heads,
                   int64_t kv_heads) {
  const TileBytes b = tile_bytes(options, tile, heads, kv_heads);
  const int64_t dout =
      heads * tile.q * options.shape.v_head_dim * byte_width(options.dtype);
  // Gradients of K and V are sums, so they are sent back in float32.
  const int64_t kv_sums =
      b.kv / byte_width(options.dtype) * static_cast<int64_t>(sizeof(float));
  const int64_t dlse =
      options.dlse ? heads * tile.q * byte_width(Dtype::f32) : 0;
  return {b.kv, b.kv + kv_sums, b.q + b.out, 2 * b.q + b.out + dout + dlse};
}

// Bytes that each shard of a group sends and receives.
struct Ends {
  std::vector<int64_t> out, in;
};

void add_pairs(const Pairs& pairs, int64_t seq, int64_t bytes, Ends& ends) {
  for (int64_t from = 0; from < seq; ++from) {
    for (int64_t to = 0; to < seq; ++to) {
      const auto n = static_cast<int64_t>(
          pairs[static_cast<size_t>(from * seq + to)].size());
      ends.out[static_cast<size_t>(from)] += n * bytes;
      ends.in[static_cast<size_t>(to)] += n * bytes;
    }
  }
}

void add_group(const Ends& ends, Moved& moved) {
  for (size_t s = 0; s < ends.out.size(); ++s) {
    moved.needed += ends.out[s];
    moved.busiest = std::max({moved.busiest, ends.out[s], ends.in[s]});
  }
}

double max_over_mean(const std::vector<Shard>& shards,
                     int64_t (*of)(const Shard&)) {
  int64_t most = 0;
  int64_t sum = 0;
  for (const Shard& s : shards) {
    most = std::max(most, of(s));
    sum += of(s);
  }
  return sum == 0
             ? 1
             : static_cast<double>(most) * static_cast<double>(shards.size()) /
                   static_cast<double>(sum);
}

double early_share(const std::vector<Shard>& shards) {
  int64_t early = 0;
  int64_t all = 0;
  for (const Shard& s : shards) {
    early += s.early_work;
    all += s.work;
  }
  return all == 0 ? 1 : static_cast<double>(early) / static_cast<double>(all);
}

// Tiles that travel in a group.
int64_t tiles_of(const Pairs& pairs) {
  int64_t tiles = 0;
  for (const std::vector<int32_t>& pair : pairs) {
    tiles += static_cast<int64_t>(pair.size());
  }
  return tiles;
}

// Tiles that rounds, or a gather, bring to a shard.
int64_t room_of(const std::vector<Round>& rounds) {
  int64_t tiles = 0;
  for (const Round& r : rounds) tiles += r.capacity;
  return tiles;
}

}  // namespace

ShardReport make_report(const Plan& plan, const Shards& shards,
                        const ShardOptions& options,
                        const std::vector<Group>& groups) {
  ShardReport out;
  out.work_max_over_mean =
      max_over_mean(shards.shards, [](const Shard& s) { return s.work; });
  out.tokens_max_over_mean = max_over_mean(
      shards.shards, [](const Shard& s) { return s.own_rows * (s.heads > 0); });
  out.early_work = early_share(shards.shards);
  const int64_t seq = shards.mesh.size("seq");
  out.kv_tiles.assign(static_cast<size_t>(seq * seq), 0);
  int64_t least = 0;  // columns of the group
  for (size_t g = 0; g < groups.size(); ++g) {
    const Shard& first = shards.shards[g * static_cast<size_t>(seq)];
    const Weights w =
        weights_of(options, shards.tile, first.heads, first.kv_heads);
    const auto n = static_cast<size_t>(seq);
    Ends forward{std::vector<int64_t>(n, 0), std::vector<int64_t>(n, 0)};
    Ends backward = forward;
    add_pairs(groups[g].kv, seq, w.kv_forward, forward);
    add_pairs(groups[g].q, seq, w.q_forward, forward);
    add_pairs(groups[g].kv, seq, w.kv_backward, backward);
    add_pairs(groups[g].q, seq, w.q_backward, backward);
    add_group(forward, out.forward);
    add_group(backward, out.backward);
    if (g == 0 || !groups[g].has_lists_of(groups[g - 1])) {
      const Demand demand = demand_of(plan, options.work, groups[g]);
      const Limits limits = limits_of(demand, groups[g], options, seq);
      least = least_columns(demand, limits, seq);
    }
    out.least_needed += least * w.kv_forward;
    const int64_t columns =
        groups[g].owners->batch_rows * groups[g].owners->columns;
    out.forward.all_gather += (seq - 1) * columns * w.kv_forward;
    out.backward.all_gather += (seq - 1) * columns * w.kv_backward;
    for (size_t i = 0; i < groups[g].kv.size(); ++i) {
      out.kv_tiles[i] += static_cast<int64_t>(groups[g].kv[i].size());
    }
  }
  const auto all = static_cast<int64_t>(shards.shards.size());
  const Weights w = weights_of(options, shards.tile, shards.shapes.heads,
                               shards.shapes.kv_heads);
  const auto add = [&](int64_t kv, int64_t q, int64_t Moved::*bytes) {
    out.forward.*bytes += kv * w.kv_forward + q * w.q_forward;
    out.backward.*bytes += kv * w.kv_backward + q * w.q_backward;
  };
  add(all * room_of(shards.kv.rounds), all * room_of(shards.q.rounds),
      &Moved::capacity);
  if (shards.exchange == TileExchange::ragged) {
    // Padding heads travel with the others.
    for (const Group& g : groups) {
      add(tiles_of(g.kv), tiles_of(g.q), &Moved::sent);
    }
  } else {
    out.forward.sent = out.forward.capacity;
    out.backward.sent = out.backward.capacity;
  }
  // Each copy of the shards has traffic of its own.
  const int64_t copies = shards.mesh.size("copy");
  for (Moved* moved : {&out.forward, &out.backward}) {
    moved->needed *= copies;
    moved->sent *= copies;
    moved->capacity *= copies;
    moved->all_gather *= copies;
  }
  out.least_needed *= copies;
  return out;
}

}  // namespace tessera::shard
