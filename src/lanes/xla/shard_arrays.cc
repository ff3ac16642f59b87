// lanes/xla/shard_arrays.cc: copies the integers of the whole batch, tile by
// tile, to the devices that hold the tiles.
#include "lanes/xla/shard_arrays.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "plan/batch_state.h"

namespace tessera::xla {
namespace {

// The shape of the whole batch on one device: every batch row, tokens in order.
Shape whole_shape(const ShardShape& s, const Request& request,
                  const mask::Bound& bound) {
  Shape out = s.local;
  out.numbered = out.numbered_masks = false;
  out.plan_heads = bound.heads;
  if (out.pick_heads > 0) out.pick_heads = bound.pick_heads;
  out.method = XlaMethod::dense;  // needs no worklist
  out.batch = request.batch;
  out.q_len = round_up(request.q_len, request.tile.q);
  out.kv_len = round_up(request.kv_len, request.tile.kv);
  return out;
}

class Spreader {
 public:
  Spreader(const ShardShape& s, const Batch::State& batch, const Shards& shards)
      : s_(s),
        bound_(batch.sweep.bound),
        shards_(shards),
        whole_shape_(whole_shape(s, batch.request, bound_)) {}

  Result<std::vector<Integers>> spread(const Batch& batch) {
    auto whole = make_integers(whole_shape_, bound_, batch.plan());
    if (!whole) return whole.error();
    whole_ = std::move(*whole);
    std::vector<Integers> out;
    for (size_t i = 0; i < shards_.shards.size(); ++i) {
      Integers of;
      exchanged_ = exchange_integers(s_, shards_, i);
      for (const ShardArray& a : shard_arguments(s_)) {
        if (!a.is_own) continue;
        of[a.part.name] = part(shards_.shards[i], a.part);
      }
      if (auto e = add_steps(batch, static_cast<int64_t>(i), of); !e) {
        return e.error();
      }
      out.push_back(std::move(of));
    }
    return out;
  }

 private:
  std::vector<int32_t> part(const Shard& shard, const Argument& a) {
    if (a.name == "bounds") return whole_.at(a.name);
    if (const auto at = exchanged_.find(a.name); at != exchanged_.end()) {
      return std::move(at->second);
    }
    std::vector<int32_t> out(static_cast<size_t>(a.type.elements()), 0);
    if (a.name == "q_positions") {
      std::fill(out.begin(), out.end(), kNoPosition);
      number(shard.rows, s_.rows.tokens, whole_shape_.q_len, out,
             [](const mask::BoundRow& row, int64_t q) {
               return q < row.q_end ? static_cast<int32_t>(q + row.q_offset)
                                    : kNoPosition;
             });
    } else if (a.name == "k_numbers" || a.name == "k_in_prefix") {
      const bool numbers = a.name == "k_numbers";
      if (numbers) std::fill(out.begin(), out.end(), kNoKey);
      number(shard.columns, s_.columns.tokens, whole_shape_.kv_len, out,
             [&](const mask::BoundRow& row, int64_t k) {
               if (!numbers) return static_cast<int32_t>(k < row.prefix);
               return k < row.valid ? static_cast<int32_t>(k) : kNoKey;
             });
    } else if (a.name == "mask_numbers") {
      number_masks(shard, out);
    } else if (a.name == "picks") {
      gather_picks(shard, out);
    } else if (a.name != "steps" && a.name != "range") {
      const bool rows = a.name.starts_with("q_");
      gather(rows ? shard.rows : shard.columns,
             rows ? s_.rows.tokens : s_.columns.tokens,
             rows ? whole_shape_.q_len : whole_shape_.kv_len, whole_.at(a.name),
             out);
    }
    return out;
  }

  template <class Number>
  void number(const std::vector<TileAt>& tiles, int64_t tokens, int64_t length,
              std::vector<int32_t>& out, Number number_of) {
    for (size_t i = 0; i < tiles.size(); ++i) {
      if (tiles[i].tile < 0) continue;
      const auto& row = bound_.rows[static_cast<size_t>(tiles[i].batch_row)];
      const int64_t first = tiles[i].tile * tokens;
      for (int64_t t = 0; t < std::min(tokens, length - first); ++t) {
        out[i * static_cast<size_t>(tokens) + static_cast<size_t>(t)] =
            number_of(row, first + t);
      }
    }
  }

  // Copies the numbers of each tile. Padding is -1, the id of no token.
  static void gather(const std::vector<TileAt>& tiles, int64_t tokens,
                     int64_t length, const std::vector<int32_t>& whole,
                     std::vector<int32_t>& out) {
    std::fill(out.begin(), out.end(), -1);
    for (size_t i = 0; i < tiles.size(); ++i) {
      if (tiles[i].tile < 0) continue;
      std::copy_n(
          whole.begin() + tiles[i].batch_row * length + tiles[i].tile * tokens,
          tokens, out.begin() + static_cast<int64_t>(i) * tokens);
    }
  }

  // The index of a shard's plan head among `count` items (masks or pick heads)
  // that the batch's plan heads share evenly.
  int64_t of_plan_head(const Shard& shard, int64_t plan_head,
                       int64_t count) const {
    return (shard.first_list + plan_head) * count / whole_shape_.plan_heads;
  }

  void number_masks(const Shard& shard, std::vector<int32_t>& out) const {
    const auto masks = static_cast<int64_t>(s_.local.masks.size());
    for (int64_t h = 0; h < shard.lists; ++h) {
      out[static_cast<size_t>(h)] =
          static_cast<int32_t>(of_plan_head(shard, h, masks));
    }
  }

  void gather_picks(const Shard& shard, std::vector<int32_t>& out) const {
    std::fill(out.begin(), out.end(), -1);
    const std::vector<int32_t>& whole = whole_.at("picks");
    const int64_t tile = s_.rows.tokens * s_.local.picks_k;
    const int64_t here = s_.local.q_len * s_.local.picks_k;
    const int64_t there = whole_shape_.q_len * s_.local.picks_k;
    const int64_t heads = whole_shape_.pick_heads;
    const int64_t group = s_.local.plan_heads / s_.local.pick_heads;
    for (size_t i = 0; i < shard.rows.size(); ++i) {
      const TileAt& t = shard.rows[i];
      if (t.tile < 0) continue;
      for (int64_t h = 0; h * group < shard.lists; ++h) {
        const int64_t from = of_plan_head(shard, h * group, heads);
        std::copy_n(whole.begin() + (t.batch_row * heads + from) * there +
                        t.tile * tile,
                    tile,
                    out.begin() + h * here + static_cast<int64_t>(i) * tile);
      }
    }
  }

  Result<void> add_steps(const Batch& batch, int64_t index, Integers& of) {
    auto packed = pack_shard(batch, shards_, index, false);
    if (!packed) return packed.error();
    return write_steps(*packed, of);
  }

  const ShardShape& s_;
  const mask::Bound& bound_;
  const Shards& shards_;
  const Shape whole_shape_;
  Integers whole_;
  // The exchange_integers() of the current shard.
  std::map<std::string_view, std::vector<int32_t>> exchanged_;
};

}  // namespace

Result<std::vector<Integers>> make_shard_integers(const ShardShape& s,
                                                  const Batch& batch,
                                                  const Shards& shards) {
  auto read = plan::read_batch(batch, "xla");
  if (!read) return read.error();
  return Spreader(s, **read, shards).spread(batch);
}

}  // namespace tessera::xla
