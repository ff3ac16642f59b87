// lanes/mosaic/backward.cc: block-sparse gradients of attention for one TPU
// core.
//
// Mathematics. g = dout, h the gradient of the log-sum-exp (0 without one), and
// with c = scale * log2(e), for one head, a tile of keys and its active tiles
// of queries:
//
//   S'  = K Q'                  keys down the sublanes, queries along the lanes
//   P'  = 2^(c S' - log2(e) lse)        the probabilities again; 0 if illegal
//   dP' = V g'
//   dS' = P' * (dP' - D)                D = sum(out * g) - h, one per query
//   dV' += g' bf16(P')     dK' += Q' bf16(dS')     dQ' += K' bf16(dS')
//
// at the end dK = scale dK'', dQ likewise. With a softcap t
//
//   S'  = tanh(scale / t K Q')      c = t log2(e)
//   dS' = P' * (dP' - D) * (1 - S'^2)
//
// because t tanh(x / t) has the slope 1 - tanh^2; of an illegal pair that is of
// the tanh before it became -inf, so that dS' is 0 and not NaN. All three sums
// are float32, and transposed: so P' and dS' are the operands that stay in the
// matrix unit, and what streams through it has 128 rows, as many as the head
// dim.
//
// One kernel does all. For each head it first walks the tiles of queries
// (`prepare`): Q and g come in, and Q', g', D and the log-sum-exp stay in
// vector memory for the whole head, with dQ' beside them at 0. Then it walks
// the transposed list, a tile of keys after another: K and V come in once
// (`column`), a pass (`full`, `partial`) takes `tiles_per_pass` of its active
// tiles and copies nothing, and dK and dV go out (`finish_column`). At the end
// dQ goes out (`finish_row`). With fewer heads of keys than of queries, dK' and
// dV' of all keys stay too, and the heads of a group add to them in turn.
//
// That takes 1,088 bytes a query of vector memory and, with groups, 1,024 a
// key. Every sum has one order: the list's, then the heads'.
//
// Where bitmaps say which pairs are legal, those of the next pass come during
// this one.
//
// A sink logit z has the gradient sum(p (h - sum(out * g))) over all queries,
// p = e^(z - lse), 1 for a query without a key. `prepare` sums it, a lane's
// queries first, then the lanes, then batch rows, which the grid takes in
// order; an id says which queries are there.
//
// What a veto takes may hold anything. Of queries it is zeroed by `prepare`, of
// keys by `column`; so no product meets it, and P' is 0 where a pair is
// illegal. A query without a key has P' = 0 by that too, whatever stands for
// its -inf.
#include "lanes/mosaic/backward.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <optional>

#include "lanes/mosaic/parts.h"
#include "tessera/mosaic.h"

namespace tessera::mosaic {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();
// Tiles of queries on their way in `prepare`, and of gradients on theirs out.
constexpr int64_t kRowsAhead = kMosaicRowsAhead;
constexpr int64_t kRowRing = kRowsAhead + 1;
static_assert(std::has_single_bit(static_cast<uint64_t>(kRowRing)));
constexpr int64_t kOutRing = 2;
// Of bitmaps: the pass in hand's, and the next one's.
constexpr int64_t kBitsRing = 2;

int64_t ring_size(const KernelShape& s) {
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(s.fetch_ahead + 1)));
}

class Backward : Parts {
 public:
  explicit Backward(const KernelShape& shape)
      : Parts(shape, backward_arguments(shape)),
        rows_(shape.q_len / shape.block_q),
        group_(shape.heads / shape.kv_heads) {}

  std::string write() {
    return function("tessera_backward", [this] { batch_row(); });
  }

 private:
  Value in_slots(const Value& n, int64_t ring) {
    return w_.bit_and(n, number(ring - 1));
  }
  Value column_slot(const Value& column) {
    return in_slots(column, ring_size(s_));
  }
  // Of the cap, where its tanh is t.
  Value slope(const Value& t) {
    const Value one = w_.splat(w_.real(1), t.type.shape);
    return w_.sub(one, w_.mul(t, t));
  }
  // Where dK' and dV' of a tile of keys are summed.
  Value sum_slot(const Value& column) {
    return group_ == 1 ? w_.constant(0) : column;
  }
  Value kv_head(const Value& head) {
    return group_ == 1 ? head : w_.div(head, number(group_));
  }
  // Of the heads that share this one's keys, whether it is number n.
  Value is_in_group(const Value& head, const Value& kv, int64_t n) {
    return w_.compare(Compare::equal, head,
                      w_.add(times(kv, group_), number(n)));
  }

  void fetch_row(const char* region, const Value& head, const Value& r);
  void prepare(const Value& head, const Value& r);
  // Of a tile of queries: their ids, which of them no veto takes, the
  // log-sum-exp, sum(out dout), and h where there is one.
  struct SinkRow {
    Value ids, is_seen, lse, dot;
    std::optional<Value> dlse;
  };
  Value base_with_sink(const SinkRow& row);
  void add_sink(const Value& head, const Value& r, const SinkRow& row);
  void finish_sink(const Value& head);
  Value place_of_sink(const Value& head);
  void fetch_column(const char* region, const Value& head, const Value& column);
  Value key_ids(const Value& column, int64_t lanes);
  void begin_column(const Value& head, const Value& column);
  void body(const Value& pass, const Value& at, const Value& column,
            bool masked);
  void fetch_pass_bits(const char* region, const Value& pass, const Value& at);
  void wait_column();
  void finish_column(const Value& head, const Value& column,
                     const Value& columns_done);
  void wait_row(const Value& r);
  void finish_row(const Value& head, const Value& r);
  void head(const Value& head, const Value& columns);
  void batch_row();

  std::vector<std::pair<const char*, const char*>> row_arrays() const {
    std::vector<std::pair<const char*, const char*>> out = {
        {"q", "q_ring"}, {"out", "out_ring"}, {"dout", "dout_ring"}};
    out.emplace_back("lse", "lse_ring");
    if (s_.has_dlse) out.emplace_back("dlse", "dlse_ring");
    return out;
  }

  int64_t rows_;
  int64_t group_;
};

void Backward::fetch_row(const char* region, const Value& head,
                         const Value& r) {
  const Writer::Region named(w_, region);
  const Value slot = in_slots(r, kRowRing);
  const Value done = semaphore("row_copies", slot);
  const Value query = times(r, s_.block_q);
  const Value zero = w_.constant(0);
  for (const auto& [array, ring] : row_arrays()) {
    const Value& from = w_.argument(array);
    const bool line = from.type.shape[2] == 1;
    const std::array<Value, 4> at = {batch_row_, head, line ? zero : query,
                                     line ? query : zero};
    const std::vector<int64_t>& tile = w_.argument(ring).type.shape;
    const Value part = w_.slice(from, at, {1, 1, tile[1], tile[2]}, 2);
    w_.start_copy(part, in_ring(ring, slot), done);
  }
}

// One tile of queries: all that the head's passes need of it.
void Backward::prepare(const Value& head, const Value& r) {
  const Writer::Region named(w_, "prepare");
  const Value later = w_.add(r, number(kRowsAhead));
  w_.if_then(less(later, number(rows_)),
             [&] { fetch_row("fetch_row", head, later); });
  const Value slot = in_slots(r, kRowRing);
  const Value done = semaphore("row_copies", slot);
  for (const auto& [array, ring] : row_arrays()) {
    w_.wait_copy(done, in_ring(ring, slot));
  }

  const std::vector<int64_t> line = {1, s_.block_q};
  const Value ids = query_ids(r);
  const Value is_seen = seen(ids);
  const Value all_seen = seen(whole(ids, {s_.head_dim, s_.block_q}));
  const Value values_seen = s_.v_head_dim == s_.head_dim
                                ? all_seen
                                : seen(whole(ids, {s_.v_head_dim, s_.block_q}));
  auto upright_tile = [&](const char* ring, const Value& kept) {
    const Value flat = load_slot(ring, slot);
    const Value turned = w_.transpose(flat);
    return w_.select(kept, turned, w_.zeros(turned.type));
  };
  store_slot(upright_tile("q_ring", all_seen), "queries", r);
  const Value dout = upright_tile("dout_ring", values_seen);
  store_slot(dout, "douts", r);
  const Value out = upright_tile("out_ring", values_seen);
  const Value wide_out = wide(out);
  const Value wide_dout = wide(dout);
  Value delta = w_.reshape(w_.reduce_sum(w_.mul(wide_out, wide_dout), 0), line);

  const Value lse = load_slot("lse_ring", slot);
  const Value finite =
      w_.compare(Compare::greater, lse, w_.splat(w_.real(-kInfinity), line));
  const Value live = w_.bit_and(finite, is_seen);
  const Value zero = w_.splat(w_.real(0), line);
  const Value log2e = w_.splat(w_.real(static_cast<float>(kLog2E)), line);
  Value most = w_.select(live, w_.mul(lse, log2e), zero);
  SinkRow row = {ids, is_seen, lse, delta, {}};
  if (s_.has_sinks) most = base_with_sink(row);
  if (s_.has_dlse) {
    row.dlse = load_slot("dlse_ring", slot);
    delta = w_.sub(delta, w_.select(live, *row.dlse, zero));
  }
  if (s_.has_sinks) add_sink(head, r, row);
  store_slot(whole(most, {kSublanes, s_.block_q}), "lses", r);
  store_slot(whole(delta, {kSublanes, s_.block_q}), "deltas", r);
  store_slot(w_.splat(w_.real(0), {s_.head_dim, s_.block_q}), "dq_sums", r);
}

// A log-sum-exp that holds a sink, in base 2: NaN stays NaN. What is below all
// numbers is the lowest, since -inf - -inf would be NaN.
Value Backward::base_with_sink(const SinkRow& row) {
  const std::vector<int64_t> line = {1, s_.block_q};
  const Value product = w_.mul(row.lse, w_.splat(log2_e(), line));
  const Value bounded = w_.max(product, w_.splat(w_.real(kLowest), line));
  return w_.select(row.is_seen, bounded, w_.splat(w_.real(0), line));
}

void Backward::add_sink(const Value& head, const Value& r, const SinkRow& row) {
  const std::vector<int64_t> line = {1, s_.block_q};
  const Value zero = w_.splat(w_.real(0), line);
  const Value above = w_.sub(sink_of(head, line), row.lse);
  const Value power = w_.mul(above, w_.splat(log2_e(), line));
  const Value one = w_.splat(w_.real(1), line);
  const Value of_sink = w_.exp2(power);
  const Value lowest = w_.splat(w_.real(-kInfinity), line);
  const Value is_gone = w_.compare(Compare::equal, row.lse, lowest);
  const Value alone = w_.select(is_gone, one, of_sink);
  const Value p = w_.select(row.is_seen, alone, one);
  const Value part = w_.mul(p, w_.sub(row.dlse.value_or(zero), row.dot));
  const Value is_there = w_.compare(Compare::greater, row.ids,
                                    w_.splat(w_.constant(kNotThere), line));
  const Value own = w_.select(is_there, part, zero);
  const Value& sum = w_.argument("sink_line");
  const Value is_start = w_.compare(Compare::equal, r, w_.constant(0));
  const Value before = w_.select(is_start, zero, w_.load(sum));
  w_.store(w_.add(before, own), sum);
}

Value Backward::place_of_sink(const Value& head) {
  const Value zero = w_.constant(0);
  const std::array<Value, 3> at = {head, zero, zero};
  return w_.slice(w_.argument("dsink_logits"), at, {1, 1, kLanes}, 1);
}

// What batch rows have given so far goes out; the last one's stays.
void Backward::finish_sink(const Value& head) {
  const Value parts = w_.load(w_.argument("sink_line"));
  const Value sum = w_.reshape(w_.reduce_sum(parts, 1), {1, 1});
  const Value is_start = w_.compare(Compare::equal, batch_row_, w_.constant(0));
  const Value found = load_slot("sink_sums", head);
  const Value before =
      w_.select(is_start, w_.splat(w_.real(0), {1, kLanes}), found);
  store_slot(w_.add(before, whole(sum, {1, kLanes})), "sink_sums", head);
  const Value from = in_ring("sink_sums", head);
  w_.start_copy(from, place_of_sink(head), w_.argument("sink_copies"));
}

void Backward::fetch_column(const char* region, const Value& head,
                            const Value& column) {
  const Writer::Region named(w_, region);
  const Value slot = column_slot(column);
  const Value done = semaphore("kv_copies", slot);
  const Value kv = kv_head(head);
  const std::array<Value, 4> at = {batch_row_, kv, times(column, s_.block_kv),
                                   w_.constant(0)};
  for (const auto& [array, ring] :
       {std::pair{"k", "k_ring"}, std::pair{"v", "v_ring"}}) {
    const int64_t dim = w_.argument(ring).type.shape[2];
    const Value tile =
        w_.slice(w_.argument(array), at, {1, 1, s_.block_kv, dim}, 2);
    w_.start_copy(tile, in_ring(ring, slot), done);
  }
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
  w_.wait_copy(done, in_ring("k_ring", slot));
  w_.wait_copy(done, in_ring("v_ring", slot));

  const Value ids = key_ids(column, kLanes);
  if (s_.bitmaps == 0) w_.store(ids, w_.argument("ids_of_keys"));
  // By how many lanes a key has.
  std::map<int64_t, Value> kept = {{kLanes, seen(ids)}};
  for (const char* ring : {"k_ring", "v_ring"}) {
    const int64_t dim = w_.argument(ring).type.shape[2];
    if (!kept.contains(dim)) kept.emplace(dim, seen(key_ids(column, dim)));
    const Value found = load_slot(ring, slot);
    const Value clean = w_.select(kept.at(dim), found, w_.zeros(found.type));
    store_slot(clean, ring, slot);
    if (ring[0] == 'k') w_.store(w_.transpose(clean), w_.argument("keys"));
  }

  auto clear = [&] {
    const Value at = sum_slot(column);
    for (const char* sums : {"dk_sums", "dv_sums"}) {
      const int64_t dim = w_.argument(sums).type.shape[1];
      store_slot(w_.splat(w_.real(0), {dim, s_.block_kv}), sums, at);
    }
  };
  if (group_ == 1) return clear();
  const Value kv = kv_head(head);
  const Writer::Region inner(w_, "clear");
  w_.if_then(is_in_group(head, kv, 0), clear);
}

void Backward::fetch_pass_bits(const char* region, const Value& pass,
                               const Value& at) {
  const Value is_masked = not_all_full(at);
  const Writer::Region named(w_, region);
  w_.if_then(is_masked, [&] { fetch_bits(at, in_slots(pass, kBitsRing)); });
}

// One pass: some tiles of queries against the tile of keys.
void Backward::body(const Value& pass, const Value& at, const Value& column,
                    bool masked) {
  const Writer::Region named(w_, masked ? "partial" : "full");
  std::optional<Value> bits_slot;
  if (masked && s_.bitmaps > 0) {
    bits_slot = in_slots(pass, kBitsRing);
    wait_bits(*bits_slot);
  }
  const std::vector<int64_t> tile = {s_.block_kv, s_.block_q};
  const Value slot = column_slot(column);
  const Value k = load_slot("k_ring", slot);
  const Value v = load_slot("v_ring", slot);
  std::vector<Value> query_rows, queries, douts, ps, dss;
  for (int64_t t = 0; t < s_.tiles_per_pass; ++t) {
    const Value step = word(at, t);
    const Value r = column_of(step);
    query_rows.push_back(r);
    queries.push_back(load_slot("queries", r));
    douts.push_back(load_slot("douts", r));
    const Value most = w_.first_row(load_slot("lses", r));
    const Value delta = w_.first_row(load_slot("deltas", r));
    const Value unmasked = scores_of(w_.matmul(k, 1, queries.back(), 0));
    Value scores = unmasked;
    const Value lowest = w_.real(-kInfinity);
    if (bits_slot) {
      const Value ok = legal_bits(*bits_slot, t, 1);
      scores = w_.select(ok, scores, w_.splat(lowest, tile));
    } else if (masked) {
      const Value key_ids = w_.load(w_.argument("ids_of_keys"));
      Value ids = query_ids(r);
      if (t > 0) {
        const Value live = is_live(step);
        ids = w_.select(live, ids,
                        w_.splat(w_.constant(kNoQuery), ids.type.shape));
      }
      const Value ok = legal(r, ids, key_ids, [&](int64_t) { return column; });
      scores = w_.select(ok, scores, w_.splat(lowest, tile));
    }
    const Value scaled = w_.mul(scores, w_.splat(unit_log2(), tile));
    const Value power = w_.sub(scaled, whole(most, tile));
    const Value p = w_.exp2(power);
    ps.push_back(narrow(p));
    const Value dp = w_.matmul(v, 1, douts.back(), 0);
    Value ds = w_.mul(p, w_.sub(dp, whole(delta, tile)));
    if (s_.softcap != 0) ds = w_.mul(ds, slope(unmasked));
    dss.push_back(narrow(ds));
  }
  const Value sums_at = sum_slot(column);
  auto add_to = [&](const char* sums, const Value& where,
                    const Value& product) {
    const Value before = load_slot(sums, where);
    store_slot(w_.add(before, product), sums, where);
  };
  const Value all_douts = w_.join(douts, 1);
  const Value all_ps = w_.join(ps, 1);
  add_to("dv_sums", sums_at, w_.matmul(all_douts, 1, all_ps, 1));
  const Value all_queries = w_.join(queries, 1);
  const Value all_dss = w_.join(dss, 1);
  add_to("dk_sums", sums_at, w_.matmul(all_queries, 1, all_dss, 1));
  const Value keys = w_.load(w_.argument("keys"));
  for (size_t t = 0; t < dss.size(); ++t) {
    add_to("dq_sums", query_rows[t], w_.matmul(keys, 1, dss[t], 0));
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
  const Value sums_at = sum_slot(column);
  const Value& done = w_.argument("column_copies");
  const Value kv = kv_head(head);
  const std::array<Value, 4> to = {batch_row_, kv, times(column, s_.block_kv),
                                   w_.constant(0)};
  struct Gradient {
    const char *sums, *tile, *array;
    double scale;
  };
  for (const Gradient& g : {Gradient{"dk_sums", "dk_tile", "dk", s_.scale},
                            Gradient{"dv_sums", "dv_tile", "dv", 1}}) {
    Value sums = load_slot(g.sums, sums_at);
    if (g.scale != 1) {
      const Value scale = w_.real(static_cast<float>(g.scale));
      sums = w_.mul(sums, w_.splat(scale, sums.type.shape));
    }
    const Value& tile = w_.argument(g.tile);
    const Value upright_sums = w_.transpose(sums);
    w_.store(s_.wide_sums ? upright_sums : narrow(upright_sums), tile);
    w_.start_copy(tile,
                  w_.slice(w_.argument(g.array), to,
                           {1, 1, s_.block_kv, tile.type.shape[1]}, 2),
                  done);
  }
}

void Backward::wait_row(const Value& r) {
  const Value slot = in_slots(r, kOutRing);
  const Value done = semaphore("dq_copies", slot);
  w_.wait_copy(done, in_ring("dq_ring", slot));
}

void Backward::finish_row(const Value& head, const Value& r) {
  const Writer::Region named(w_, "finish_row");
  w_.if_then(w_.compare(Compare::greater_or_equal, r, number(kOutRing)),
             [&] { wait_row(r); });
  Value sums = load_slot("dq_sums", r);
  const Value scale = w_.real(static_cast<float>(s_.scale));
  sums = w_.mul(sums, w_.splat(scale, sums.type.shape));
  const Value slot = in_slots(r, kOutRing);
  store_slot(narrow(w_.transpose(sums)), "dq_ring", slot);
  const std::array<Value, 4> to = {batch_row_, head, times(r, s_.block_q),
                                   w_.constant(0)};
  const Value from = in_ring("dq_ring", slot);
  const Value place =
      w_.slice(w_.argument("dq"), to, {1, 1, s_.block_q, s_.head_dim}, 2);
  w_.start_copy(from, place, semaphore("dq_copies", slot));
}

void Backward::head(const Value& head, const Value& columns) {
  const Writer::Region named(w_, "head");
  const Value zero = w_.constant(0);
  using Body = std::function<void(const Value&)>;
  auto loop = [&](const Value& end, const Body& body) {
    w_.for_each(zero, end, {}, [&](const Value& i, std::span<const Value>) {
      body(i);
      return std::vector<Value>{};
    });
  };
  w_.comment("the first copies of keys are on their way while queries come");
  loop(w_.min(columns, number(s_.fetch_ahead)),
       [&](const Value& c) { fetch_column("first_columns", head, c); });
  loop(number(std::min(rows_, kRowsAhead)),
       [&](const Value& r) { fetch_row("first_rows", head, r); });
  loop(number(rows_), [&](const Value& r) { prepare(head, r); });
  if (s_.has_sinks) finish_sink(head);

  w_.comment("every tile of keys, and its passes");
  const Value passes = w_.div(w_.sub(end_, begin_), number(s_.tiles_per_pass));
  if (s_.bitmaps > 0) fetch_pass_bits("first_bits", zero, begin_);
  const std::vector<Value> out = w_.for_each(
      zero, passes, {zero},
      [&](const Value& i, std::span<const Value> c) -> std::vector<Value> {
        const Writer::Region pass(w_, "pass");
        const Value at = w_.add(begin_, times(i, s_.tiles_per_pass));
        if (s_.bitmaps > 0) {
          const Value next = w_.add(i, w_.constant(1));
          w_.if_then(less(next, passes), [&] {
            fetch_pass_bits("bits", next,
                            w_.add(at, number(s_.tiles_per_pass)));
          });
        }
        const Value step = word(at);
        const Value column = row_of(step);
        w_.if_then(is_true(is_first(step)), [&] {
          const Value later = w_.add(column, number(s_.fetch_ahead));
          w_.if_then(less(later, columns),
                     [&] { fetch_column("fetch_column", head, later); });
          begin_column(head, column);
        });
        const Value full = all_full(at);
        w_.if_else(
            full, [&] { body(i, at, column, false); },
            [&] { body(i, at, column, true); });
        Value ends = is_last(word(at, s_.tiles_per_pass - 1));
        if (group_ > 1) {
          const Value kv = kv_head(head);
          const Value leaves = is_in_group(head, kv, group_ - 1);
          ends = w_.select(leaves, ends, zero);
        }
        w_.if_then(is_true(ends), [&] { finish_column(head, column, c[0]); });
        return {w_.add(c[0], ends)};
      });
  w_.if_then(is_true(out[0]), [&] { wait_column(); });

  w_.comment("dQ of the head");
  loop(number(rows_), [&](const Value& r) { finish_row(head, r); });
  for (int64_t r = std::max<int64_t>(rows_ - kOutRing, 0); r < rows_; ++r) {
    wait_row(number(r));
  }
  if (s_.has_sinks) {
    w_.wait_copy(w_.argument("sink_copies"), in_ring("sink_sums", head));
  }
}

void Backward::batch_row() {
  const Writer::Region named(w_, "batch_row");
  copy_ids();
  // Columns follow each other from 0, each with a step.
  const Value last = word(w_.sub(end_, w_.constant(1)));
  const Value columns = w_.add(row_of(last), w_.constant(1));
  w_.for_each(w_.constant(0), number(s_.heads_of_list()), {},
              [&](const Value& h, std::span<const Value>) {
                head(head_number(h), columns);
                return std::vector<Value>{};
              });
}

}  // namespace

std::vector<Argument> backward_arguments(const KernelShape& s) {
  const Element own = element_of(s);
  constexpr Element kF32 = Element::f32;
  const Element of_sums = s.wide_sums ? kF32 : own;
  const int64_t ring = ring_size(s);
  const int64_t rows = s.rows();
  const int64_t sums = s.heads == s.kv_heads ? 1 : s.columns();
  auto of_queries = [&](int64_t dim) -> std::vector<int64_t> {
    return {s.batch, s.heads, s.q_len, dim};
  };
  auto of_keys = [&](int64_t dim) -> std::vector<int64_t> {
    return {s.batch, s.kv_heads, s.kv_len, dim};
  };
  const std::vector<int64_t> of_rows = {s.batch, s.heads, 1, s.q_len};
  std::vector<Argument> out = scalar_arguments(s);
  auto add = [&](std::vector<Argument> more) {
    out.insert(out.end(), more.begin(), more.end());
  };
  add({in_hbm("q", own, of_queries(s.head_dim)),
       in_hbm("k", own, of_keys(s.head_dim)),
       in_hbm("v", own, of_keys(s.v_head_dim)),
       in_hbm("out", own, of_queries(s.v_head_dim)),
       in_hbm("dout", own, of_queries(s.v_head_dim)),
       in_hbm("lse", kF32, of_rows)});
  if (s.has_dlse) add({in_hbm("dlse", kF32, of_rows)});
  add(id_arguments(s));
  add(bit_arguments(s));
  add({in_hbm("dq", own, of_queries(s.head_dim)),
       in_hbm("dk", of_sums, of_keys(s.head_dim)),
       in_hbm("dv", of_sums, of_keys(s.v_head_dim))});
  if (s.has_sinks) add({in_hbm("dsink_logits", kF32, {s.heads, 1, kLanes})});
  // Scratch. Of a head: Q', dout', the log-sum-exp in base 2, D, dQ'.
  add({in_vmem("queries", own, {rows, s.head_dim, s.block_q}),
       in_vmem("douts", own, {rows, s.v_head_dim, s.block_q}),
       in_vmem("lses", kF32, {rows, kSublanes, s.block_q}),
       in_vmem("deltas", kF32, {rows, kSublanes, s.block_q}),
       in_vmem("dq_sums", kF32, {rows, s.head_dim, s.block_q}),
       // Of a tile of keys, or of all where heads share them.
       in_vmem("dk_sums", kF32, {sums, s.head_dim, s.block_kv}),
       in_vmem("dv_sums", kF32, {sums, s.v_head_dim, s.block_kv}),
       in_vmem("keys", own, {s.head_dim, s.block_kv})});  // K'
  if (s.bitmaps == 0) {
    add({in_vmem("ids_of_keys", Element::i32, {s.block_kv, kLanes})});
  }
  // What comes and goes.
  add({in_vmem("k_ring", own, {ring, s.block_kv, s.head_dim}),
       in_vmem("v_ring", own, {ring, s.block_kv, s.v_head_dim}),
       in_vmem("q_ring", own, {kRowRing, s.block_q, s.head_dim}),
       in_vmem("out_ring", own, {kRowRing, s.block_q, s.v_head_dim}),
       in_vmem("dout_ring", own, {kRowRing, s.block_q, s.v_head_dim}),
       in_vmem("lse_ring", kF32, {kRowRing, 1, s.block_q})});
  if (s.has_dlse) add({in_vmem("dlse_ring", kF32, {kRowRing, 1, s.block_q})});
  add({in_vmem("dk_tile", of_sums, {s.block_kv, s.head_dim}),
       in_vmem("dv_tile", of_sums, {s.block_kv, s.v_head_dim}),
       in_vmem("dq_ring", own, {kOutRing, s.block_q, s.head_dim})});
  add(id_scratch(s));
  add({semaphores("row_copies", {kRowRing}), semaphores("kv_copies", {ring}),
       semaphores("dq_copies", {kOutRing}), semaphores("column_copies", {}),
       semaphores("id_copies", {})});
  add(bit_scratch(s, kBitsRing));
  if (s.has_sinks) {
    add({in_vmem("sink_line", kF32, {1, s.block_q}),
         in_vmem("sink_sums", kF32, {s.heads, 1, kLanes}),
         semaphores("sink_copies", {})});
  }
  return out;
}

std::string backward_kernel(const KernelShape& shape) {
  return Backward(shape).write();
}

}  // namespace tessera::mosaic
