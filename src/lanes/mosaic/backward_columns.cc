// lanes/mosaic/backward_columns.cc: work on tiles of keys: preparing them
// before their passes, and sending dK and dV after them.
#include <array>
#include <bit>
#include <map>
#include <utility>

#include "lanes/mosaic/backward_parts.h"

namespace tessera::mosaic {

int64_t column_ring_size(const KernelShape& s) {
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(s.fetch_ahead + 1)));
}

Value Backward::load_of(const char* name, int64_t heads, int64_t h) {
  const Value& ref = w_.argument(name);
  const int64_t rows = ref.type.shape[0] / heads;
  const std::array<Value, 2> at = {w_.index(h * rows), w_.index(0)};
  return w_.load(ref, at, {rows, ref.type.shape[1]});
}

void Backward::store_of(const Value& value, const char* name, int64_t heads,
                        int64_t h) {
  const Value& ref = w_.argument(name);
  const int64_t rows = ref.type.shape[0] / heads;
  const std::array<Value, 2> at = {w_.index(h * rows), w_.index(0)};
  w_.store(value, ref, at);
}

void Backward::fetch_column(const char* region, const char* sums_region,
                            const Value& head, const Value& column) {
  const Writer::Region named(w_, region);
  const Value slot = column_slot(column);
  const Value done = semaphore("kv_copies", slot);
  const Value kv = kv_head(head);
  const Value key = times(column, s_.block_kv);
  for (const OfTokens& of : of_keys()) {
    in_key_part(key, [&](size_t part, const Value& there) {
      const Value tile = tokens_of(key_part(of.array, part), kv, kv_heads_,
                                   there, s_.block_kv, of.dim);
      w_.start_copy(tile, heads_in(of.ring, slot, kv_heads_), done);
    });
  }
  if (s_.in_chunks()) fetch_sums(sums_region, head, column);
}

// The ids of a tile's keys, repeated along `dim`, in the layout of a tile.
Value Backward::key_ids(const Value& column, int64_t dim) {
  const bool last = tokens_last(dim);
  std::vector<Value> parts;
  const Value line = times(column, s_.block_kv / kLanes);
  for (int64_t i = 0; i < s_.block_kv / kLanes; ++i) {
    const Value ids = ids_at("key_ids", w_.add(line, number(i)));
    parts.push_back(last ? ids : upright(ids, dim));
  }
  if (!last) return w_.join(parts, 0);
  return whole(w_.join(parts, 1), s_.tile_of(s_.block_kv, dim));
}

// Begins a tile of keys: K, K' and V without vetoed keys, ids, sums at 0.
void Backward::begin_column(const Value& head, const Value& column) {
  const Writer::Region named(w_, "column");
  const Value slot = column_slot(column);
  const Value done = semaphore("kv_copies", slot);
  w_.wait_copy(done, heads_in("k_ring", slot, kv_heads_));
  w_.wait_copy(done, heads_in("v_ring", slot, kv_heads_));
  if (s_.in_chunks()) begin_sums(head, column);

  // Checked before the selects below, which may remove a stray too.
  std::optional<Value> strays;
  if (s_.any_numbers) {
    strays = has_strays({"k_ring", "v_ring"}, slot, kv_heads_);
  }
  const Value ids = key_ids(column, kLanes);
  if (s_.bitmaps == 0) w_.store(ids, w_.argument("ids_of_keys"));
  // Keys to keep, by the dim along which the ids are repeated.
  std::map<int64_t, Value> kept = {{kLanes, seen(ids)}};
  for (int64_t h = 0; h < kv_heads_; ++h) {
    const Value own = of_head(slot, kv_heads_, h);
    for (const auto& [array, ring, dim] : of_keys()) {
      if (!kept.contains(dim)) kept.emplace(dim, seen(key_ids(column, dim)));
      const Value found = load_slot(ring, own);
      const Value clean = w_.select(kept.at(dim), found, w_.zeros(found.type));
      store_slot(clean, ring, own);
      if (array[0] == 'v' || !keeps_keys(s_)) continue;
      const Value turned = tokens_last(dim) ? clean : w_.transpose(clean);
      store_of(turned, "keys", kv_heads_, h);
    }
  }
  if (strays) {
    const Writer::Region inner(w_, "repair");
    w_.if_then(*strays, [&] { repair_keys(slot); });
  }

  if (s_.in_chunks()) return;
  if (!takes_turns()) return clear_keys(column);
  const Value kv = kv_head(head);
  const Writer::Region inner(w_, "clear");
  w_.if_then(is_in_group(head, kv, 0), [&] { clear_keys(column); });
}

// Strays in K' and V become 0. K keeps its strays, and becomes NaN for keys
// with a stray in V, so that the scores of both are not finite.
void Backward::repair_keys(const Value& slot) {
  for (int64_t h = 0; h < kv_heads_; ++h) {
    const Value own = of_head(slot, kv_heads_, h);
    Value clean = without_strays(load_slot("k_ring", own));
    if (!tokens_last(s_.head_dim)) clean = w_.transpose(clean);
    store_of(clean, "keys", kv_heads_, h);
    take_strays_of_keys(own);
  }
}

void Backward::clear_keys(const Value& column) {
  for (int64_t h = 0; h < kv_heads_; ++h) {
    const Value at = sum_slot(column, h);
    for (const char* sums : {"dk_sums", "dv_sums"}) {
      const int64_t dim = w_.argument(sums).type.shape[1];
      store_slot(w_.splat(w_.real(0), {dim, s_.block_kv}), sums, at);
    }
  }
}

void Backward::wait_column() {
  const Value& done = w_.argument("column_copies");
  w_.wait_copy(done, w_.argument("dk_tile"));
  w_.wait_copy(done, w_.argument("dv_tile"));
}

// Sends dK and dV of a tile of keys, once the previous tile's are complete.
void Backward::finish_column(const Value& head, const Value& column,
                             const Value& columns_done) {
  const Writer::Region named(w_, "finish_column");
  w_.if_then(is_true(columns_done), [&] { wait_column(); });
  const Value& done = w_.argument("column_copies");
  const Value first_kv = kv_head(head);
  const Value key = times(column, s_.block_kv);
  struct Gradient {
    const char *sums, *tile, *array;
    int64_t dim;
    double scale;
  };
  for (int64_t h = 0; h < kv_heads_; ++h) {
    const Value sums_at = sum_slot(column, h);
    const Value kv = with_head(first_kv, h);
    for (const Gradient& g :
         {Gradient{"dk_sums", "dk_tile", "dk", s_.head_dim, s_.scale},
          Gradient{"dv_sums", "dv_tile", "dv", s_.v_head_dim, 1}}) {
      Value sums = load_slot(g.sums, sums_at);
      if (g.scale != 1) {
        const Value scale = w_.real(static_cast<float>(g.scale));
        sums = w_.mul(sums, w_.splat(scale, sums.type.shape));
      }
      const bool last = tokens_last(g.dim);
      if (!last) sums = w_.transpose(sums);
      store_of(s_.wide_sums ? sums : narrow(sums), g.tile, kv_heads_, h);
      const std::vector<int64_t> tile = s_.tile_of(s_.block_kv, g.dim);
      const std::array<Value, 2> at = {number(h * tile[0]), w_.constant(0)};
      const Value from = w_.slice(w_.argument(g.tile), at, tile, 0);
      in_key_part(key, [&](size_t part, const Value& there) {
        std::array<Value, 4> to = {batch_row_, kv, there, w_.constant(0)};
        if (last) std::swap(to[2], to[3]);
        const Value place = w_.slice(w_.argument(key_part(g.array, part)), to,
                                     {1, 1, tile[0], tile[1]}, 2);
        w_.start_copy(from, place, done);
      });
    }
  }
}

}  // namespace tessera::mosaic
