// lanes/mosaic/backward_pass.cc: a pass of the backward kernel, some tiles of
// queries against a tile of keys.
#include <array>
#include <utility>

#include "lanes/mosaic/backward_parts.h"

namespace tessera::mosaic {

// Head h's line of the tile of queries at place r.
Value Backward::line_of(const char* name, const Value& r, int64_t h) {
  const std::array<Value, 3> at = {w_.to_index(r), w_.index(h), w_.index(0)};
  const Value found = w_.load(w_.argument(name), at, {1, 1, s_.block_q});
  return w_.reshape(found, {1, s_.block_q});
}

// Fetches a pass's queries, their dout, and bitmaps.
void Backward::fetch_pass(const char* region, const char* bits_region,
                          const Value& head, const Value& pass,
                          const Value& at) {
  const Writer::Region named(w_, region);
  const Value slot = in_slots(pass, kPassRing);
  const Value done = semaphore("pass_copies", slot);
  const Value first = times(slot, heads_);
  const int64_t side = s_.block_q;
  struct OfQueries {
    const char *array, *ring;
    int64_t dim;
  };
  for (int64_t t = 0; t < s_.tiles_per_pass; ++t) {
    const Value query = times(column_of(word(at, t)), side);
    for (const auto& [array, ring, dim] :
         {OfQueries{"q", "q_ring", s_.head_dim},
          OfQueries{"dout", "dout_ring", s_.v_head_dim}}) {
      const Value tile = tokens_of(array, head, heads_, query, side, dim);
      const Value place = tokens_in(ring, first, heads_, t * side, side, dim);
      w_.start_copy(tile, place, done);
    }
  }
  if (s_.bitmaps == 0) return;
  const Value is_masked = not_all_full(at);
  const Writer::Region inner(w_, bits_region);
  w_.if_then(is_masked, [&] { fetch_bits(at, slot); });
}

void Backward::wait_pass(const Value& pass) {
  const Value slot = in_slots(pass, kPassRing);
  const Value done = semaphore("pass_copies", slot);
  w_.wait_copy(done, heads_in("q_ring", slot, heads_));
  w_.wait_copy(done, heads_in("dout_ring", slot, heads_));
}

// One tile of a pass's head from a ring of queries, as it lies and upright.
Backward::Queries Backward::queries_of(const char* ring, int64_t dim,
                                       const Value& pass, int64_t h, int64_t t,
                                       bool masked, const PassTile& tile) {
  const Value slot = of_head(in_slots(pass, kPassRing), heads_, h);
  const bool last = tokens_last(dim);
  std::array<Value, 3> at = {w_.to_index(slot), w_.index(t * s_.block_q),
                             w_.index(0)};
  if (last) std::swap(at[1], at[2]);
  const Value there =
      w_.load(w_.argument(ring), at, tiles_of(s_, 1, s_.block_q, dim));
  const Value flat = w_.reshape(there, s_.tile_of(s_.block_q, dim));
  const Value turned = last ? flat : w_.transpose(flat);
  if (!masked) return {flat, last ? 0 : 1, turned};
  const Value kept = seen(whole(*tile.ids, turned.type.shape));
  const Value clean = w_.select(kept, turned, w_.zeros(turned.type));
  return {clean, 0, clean};
}

Value Backward::has_marked_row(const Value& at) {
  Value any = w_.constant(0);
  for (int64_t t = 0; t < s_.tiles_per_pass; ++t) {
    const Value place = in_scratch(column_of(word(at, t)));
    const Value mark = w_.load_scalar(w_.argument("row_marks"), place);
    any = w_.bit_or(any, mark);
  }
  return is_true(any);
}

// Strays in Q and g become 0. Returns the log-sum-exp, as NaN for queries that
// had a stray in any of the three, so that all their legal pairs become NaN.
Value Backward::take_strays(Queries& q, Queries& g, const Value& most) {
  const std::vector<int64_t> line = {1, s_.block_q};
  Value strays = as_ones(w_.invert(is_finite(most)));
  for (Queries* of : {&q, &g}) {
    const Value own = as_ones(w_.invert(is_finite(wide(of->upright))));
    strays = w_.add(strays, w_.reshape(w_.reduce_sum(own, 0), line));
    const Value clean = without_strays(of->upright);
    *of = {clean, 0, clean};
  }
  const Value none = w_.splat(w_.real(0), line);
  const Value any = w_.compare(Compare::greater, strays, none);
  return w_.select(any, w_.splat(w_.real(kNan), line), most);
}

// One pass: some tiles of queries against the tile of keys.
void Backward::body(const Value& pass, const Value& at, const Value& column,
                    PassKind kind) {
  constexpr const char* kRegions[] = {"full", "partial", "spoiled"};
  const Writer::Region named(w_, kRegions[static_cast<size_t>(kind)]);
  const bool masked = is_masked(kind);
  std::optional<Value> bits_slot;
  if (masked && s_.bitmaps > 0) {
    bits_slot = in_slots(pass, kPassRing);
    wait_bits(*bits_slot);
  }
  std::vector<PassTile> tiles;
  for (int64_t t = 0; t < s_.tiles_per_pass; ++t) {
    const Value step = word(at, t);
    const Value row = column_of(step);
    tiles.push_back({step, row, in_scratch(row), {}, {}});
    if (masked) tiles.back().ids = query_ids(tiles.back().row);
  }
  // The gradients of all heads come before the products of any, so that no
  // head's products wait for another's.
  std::vector<HeadTiles> heads;
  for (int64_t h = 0; h < heads_; ++h) {
    heads.push_back(gradients(pass, column, bits_slot, kind, h, tiles));
  }
  for (int64_t h = 0; h < heads_; ++h) {
    add_products(column, h, tiles, heads[static_cast<size_t>(h)]);
  }
}

Value Backward::legal_tile(const Value& column, const PassTile& tile,
                           int64_t t) {
  const Value key_ids = w_.load(w_.argument("ids_of_keys"));
  Value ids = *tile.ids;
  if (t > 0) {
    const Value live = is_live(tile.step);
    ids = w_.select(live, ids, w_.splat(w_.constant(kNoQuery), ids.type.shape));
  }
  return legal(tile.row, ids, key_ids, [&](int64_t) { return column; });
}

// P' and dS' of one head, for each of the pass's tiles.
Backward::HeadTiles Backward::gradients(const Value& pass, const Value& column,
                                        const std::optional<Value>& bits_slot,
                                        PassKind kind, int64_t h,
                                        std::vector<PassTile>& tiles) {
  const bool masked = is_masked(kind);
  const bool spoiled = kind == PassKind::spoiled;
  const std::vector<int64_t> tile = {s_.block_kv, s_.block_q};
  const Value slot = of_head(column_slot(column), kv_heads_, kv_of(h));
  const Value k = load_slot("k_ring", slot);
  const Value v = load_slot("v_ring", slot);
  const int32_t k_dim = tokens_last(s_.head_dim) ? 0 : 1;
  const int32_t v_dim = tokens_last(s_.v_head_dim) ? 0 : 1;
  HeadTiles out;
  for (int64_t t = 0; t < s_.tiles_per_pass; ++t) {
    PassTile& own = tiles[static_cast<size_t>(t)];
    Queries q = queries_of("q_ring", s_.head_dim, pass, h, t, masked, own);
    Queries g = queries_of("dout_ring", s_.v_head_dim, pass, h, t, masked, own);
    Value most = line_of("lses", own.place, h);
    if (spoiled) most = take_strays(q, g, most);
    out.queries.push_back(q.upright);
    out.douts.push_back(g.upright);
    const Value delta = line_of("deltas", own.place, h);
    const auto legal_only = [&](const Value& numbers) {
      const Value none = w_.splat(w_.real(0), tile);
      return w_.select(*own.legal, numbers, none);
    };
    const Value unmasked = scores_of(w_.matmul(k, k_dim, q.operand, q.dim));
    Value scores = unmasked;
    if (masked) {
      if (!own.legal) {
        own.legal = bits_slot ? legal_bits(*bits_slot, t, 1)
                              : legal_tile(column, own, t);
      }
      const Value lowest = w_.real(-kInfinity);
      scores = w_.select(*own.legal, scores, w_.splat(lowest, tile));
    }
    const Value scaled = w_.mul(scores, w_.splat(unit_log2(), tile));
    const Value power = w_.sub(scaled, whole(most, tile));
    Value p = w_.exp2(power);
    if (spoiled) p = legal_only(p);
    out.ps.push_back(narrow(p));
    const Value dp = w_.matmul(v, v_dim, g.operand, g.dim);
    Value ds = w_.mul(p, w_.sub(dp, whole(delta, tile)));
    if (s_.softcap != 0) ds = w_.mul(ds, slope(unmasked));
    // P of an illegal pair is 0, but V g and the cap's derivative may be NaN.
    if (masked && s_.any_numbers) ds = legal_only(ds);
    out.dss.push_back(narrow(ds));
  }
  return out;
}

Value Backward::upright_keys(const Value& column, int64_t h) {
  if (keeps_keys(s_)) return load_of("keys", kv_heads_, kv_of(h));
  return load_slot("k_ring", of_head(column_slot(column), kv_heads_, kv_of(h)));
}

// Adds the pass's products to the sums dV', dK' and dQ'.
void Backward::add_products(const Value& column, int64_t h,
                            const std::vector<PassTile>& tiles,
                            const HeadTiles& own) {
  const Value sums_at = sum_slot(column, kv_of(h));
  auto add_to = [&](const char* sums, const Value& where,
                    const Value& product) {
    const Value before = load_slot(sums, where);
    store_slot(w_.add(before, product), sums, where);
  };
  const Value all_douts = w_.join(own.douts, 1);
  const Value all_ps = w_.join(own.ps, 1);
  add_to("dv_sums", sums_at, w_.matmul(all_douts, 1, all_ps, 1));
  const Value all_queries = w_.join(own.queries, 1);
  const Value all_dss = w_.join(own.dss, 1);
  add_to("dk_sums", sums_at, w_.matmul(all_queries, 1, all_dss, 1));
  const Value keys = upright_keys(column, h);
  for (size_t t = 0; t < own.dss.size(); ++t) {
    const Value r = of_head(tiles[t].place, heads_, h);
    add_to("dq_sums", r, w_.matmul(keys, 1, own.dss[t], 0));
  }
}

}  // namespace tessera::mosaic
