// lanes/mosaic/backward_columns.cc: tiles of keys before their passes, and dK
// and dV behind them.
#include <array>
#include <bit>
#include <map>

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
  const std::array<Value, 4> at = {batch_row_, kv, times(column, s_.block_kv),
                                   w_.constant(0)};
  for (const auto& [array, ring] :
       {std::pair{"k", "k_ring"}, std::pair{"v", "v_ring"}}) {
    const int64_t dim = w_.argument(ring).type.shape[2];
    const Value tile = heads_of(array, at, kv_heads_, s_.block_kv, dim);
    w_.start_copy(tile, heads_in(ring, slot, kv_heads_), done);
  }
  if (s_.in_chunks()) fetch_sums(sums_region, head, column);
}

// The ids of a tile's keys, one a sublane and the same in all lanes.
Value Backward::key_ids(const Value& column, int64_t lanes) {
  std::vector<Value> parts;
  const Value line = times(column, s_.block_kv / kLanes);
  for (int64_t i = 0; i < s_.block_kv / kLanes; ++i) {
    const Value ids = ids_at("key_ids", w_.add(line, number(i)));
    parts.push_back(upright(ids, lanes));
  }
  return w_.join(parts, 0);
}

// A tile of keys: K, K' and V without what vetoes took, its ids, sums at 0.
void Backward::begin_column(const Value& head, const Value& column) {
  const Writer::Region named(w_, "column");
  const Value slot = column_slot(column);
  const Value done = semaphore("kv_copies", slot);
  w_.wait_copy(done, heads_in("k_ring", slot, kv_heads_));
  w_.wait_copy(done, heads_in("v_ring", slot, kv_heads_));
  if (s_.in_chunks()) begin_sums(head, column);

  const Value ids = key_ids(column, kLanes);
  if (s_.bitmaps == 0) w_.store(ids, w_.argument("ids_of_keys"));
  // By how many lanes a key has.
  std::map<int64_t, Value> kept = {{kLanes, seen(ids)}};
  for (int64_t h = 0; h < kv_heads_; ++h) {
    const Value own = of_head(slot, kv_heads_, h);
    for (const char* ring : {"k_ring", "v_ring"}) {
      const int64_t dim = w_.argument(ring).type.shape[2];
      if (!kept.contains(dim)) kept.emplace(dim, seen(key_ids(column, dim)));
      const Value found = load_slot(ring, own);
      const Value clean = w_.select(kept.at(dim), found, w_.zeros(found.type));
      store_slot(clean, ring, own);
      if (ring[0] == 'k') store_of(w_.transpose(clean), "keys", kv_heads_, h);
    }
  }

  if (s_.in_chunks()) return;
  if (!takes_turns()) return clear_keys(column);
  const Value kv = kv_head(head);
  const Writer::Region inner(w_, "clear");
  w_.if_then(is_in_group(head, kv, 0), [&] { clear_keys(column); });
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

// dK and dV of a tile of keys, once the tiles that went out before are away.
void Backward::finish_column(const Value& head, const Value& column,
                             const Value& columns_done) {
  const Writer::Region named(w_, "finish_column");
  w_.if_then(is_true(columns_done), [&] { wait_column(); });
  const Value& done = w_.argument("column_copies");
  const Value first_kv = kv_head(head);
  const Value key = times(column, s_.block_kv);
  struct Gradient {
    const char *sums, *tile, *array;
    double scale;
  };
  for (int64_t h = 0; h < kv_heads_; ++h) {
    const Value sums_at = sum_slot(column, h);
    const std::array<Value, 4> to = {batch_row_, with_head(first_kv, h), key,
                                     w_.constant(0)};
    for (const Gradient& g : {Gradient{"dk_sums", "dk_tile", "dk", s_.scale},
                              Gradient{"dv_sums", "dv_tile", "dv", 1}}) {
      Value sums = load_slot(g.sums, sums_at);
      if (g.scale != 1) {
        const Value scale = w_.real(static_cast<float>(g.scale));
        sums = w_.mul(sums, w_.splat(scale, sums.type.shape));
      }
      const Value upright_sums = w_.transpose(sums);
      store_of(s_.wide_sums ? upright_sums : narrow(upright_sums), g.tile,
               kv_heads_, h);
      const Value& all = w_.argument(g.tile);
      const int64_t dim = all.type.shape[1];
      const std::array<Value, 2> at = {number(h * s_.block_kv), w_.constant(0)};
      const Value from = w_.slice(all, at, {s_.block_kv, dim}, 0);
      const Value place =
          w_.slice(w_.argument(g.array), to, {1, 1, s_.block_kv, dim}, 2);
      w_.start_copy(from, place, done);
    }
  }
}

}  // namespace tessera::mosaic
