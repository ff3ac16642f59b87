// lanes/mosaic/forward.cc: block-sparse flash attention for one TPU core.
//
// Mathematics. For one head and the queries of one tile row, over the row's
// active key tiles, with c = scale * log2(e):
//
//   S' = K Q'            scores, transposed: keys down the sublanes, queries
//                        along the lanes. Illegal pairs become -inf.
//   m  = max(m, max_k S')                             a maximum per query
//   P' = 2^(c S' - c m)                               float32, unrounded
//   l  = l 2^(c m_old - c m) + sum_k P'
//   O' = O' 2^(c m_old - c m) + V' bf16(P')           transposed as well
//
// (where the row sum is rounded, l is one more row of O', of a V of ones)
//
// At the row's end out = (O' / l)' and lse = ln 2 c m + ln l; if l is 0, no key
// was legal: out is 0 and lse -inf. With queries along the lanes the maximum
// and the sum run down the sublanes, so no step shuffles lanes, and both
// products contract as the matrix unit prefers: Q' and P' are the operands that
// stay in it. m starts at a finite number below every score (least_score), so
// that 2^(-inf - m) is 0 and never NaN.
//
// A sink logit z is one more score, without a value. It is added at the row's
// end, in natural units: with m' = ln 2 c m and n = max(m', z), or z if l is 0,
//
//   l' = l e^(m' - n) + e^(z - n)     out = (O' e^(m' - n) / l')'
//   lse = n + ln l'
//
// so lse is z for a row without a key, and z = -inf gives the same as no sink.
//
// With a softcap t a score is t tanh(scale q.k / t). Then S' is the tanh alone,
// c = t log2(e), and everything below the first line is unchanged: a score
// costs one more multiplication and the tanh. Illegal pairs become -inf after
// the tanh, which would turn -inf into a finite score.
//
// Cost of a pass on v6e, in bundles, for one tile of 512 x 512 and 8 heads:
// 3,730 if the tile is full, 5,076 if not, and 475 more if it has keys to
// clean; the end of a row takes 870. For one head: 655, 801, 169 and 145. The
// loop around them takes some 130 in both cases. For 256 x 256: 1,142, 1,468,
// 241 and 481 with 8 heads; 302, 328, 90 and 98 with one.
//
// On a mesh a pass may be two calls (shards.h), for a row's own keys and for
// the received ones. If a row has both, the first call leaves its m, l and O'
// in HBM unchanged (`so_far`), and the second continues with them, so no
// results are merged.
//
// Vetoed keys may hold NaN, which must not reach a sum as 0 * NaN: the host
// marks tiles with such keys (class 3, kernel_steps.h), and their V is set to 0
// before the pass.
//
// With `any_numbers` the same holds for strays (NaN and infinities) anywhere. A
// stray in K reaches only its own scores, and illegal ones become -inf; a stray
// in Q reaches only its own query. V of a masked pass is searched beside the
// pass's scores. If a key has a stray in V, that V becomes 0, its K becomes
// NaN, and the scores are made again: queries for which the key is legal become
// NaN.
#include "lanes/mosaic/forward.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "lanes/mosaic/pass_loop.h"
#include "lanes/mosaic/program.h"

namespace tessera::mosaic {
namespace {

// Columns of ones beside V, where the row sum is rounded.
constexpr int64_t kOnes = 8;

// Whole tiles of kStripTile queries spill P' before it is multiplied, and leave
// the matrix unit idle during most of the softmax. Where both dims together are
// so long (kStripDims) that products take longer than the softmax, shorter
// masked tiles spill too. No tile does in strips of kStripQueries.
constexpr int64_t kStripTile = 1024;
constexpr int64_t kStripDims = 512;
constexpr int64_t kStripQueries = 256;

// Rows of O', including those of a rounded sum.
int64_t sum_rows(const KernelShape& s) {
  return s.v_head_dim + (s.rounded_sum ? kOnes : 0);
}

// State of a row that waits between calls: m, l and O' of each head. A rounded
// l is one of the rows of O'.
constexpr int64_t kStateRing = 2;
int64_t state_lines(const KernelShape& s) {
  return (s.rounded_sum ? 1 : 2) * kSublanes;
}
int64_t state_rows(const KernelShape& s) {
  return state_lines(s) + sum_rows(s);
}

class Forward : public PassLoop {
 public:
  explicit Forward(const KernelShape& shape)
      : PassLoop(shape, forward_arguments(shape),
                 {{"k", "k_ring", shape.head_dim},
                  {"v", "v_ring", shape.v_head_dim}}) {
    queries_ = strip_queries(shape);
  }

 private:
  Value has_vetoed(const Place& p);
  void clean(const Value& pass, const Place& p) override;
  std::optional<Value> has_strays_in(const Value& pass) override;
  void repair(const Value& pass) override;
  void absorb(const Value& pass, const Place& p, const Strip& strip) override;
  // Whether the product takes V with its keys last.
  bool turned() const {
    return tokens_last(s_.v_head_dim) || queries_ < s_.block_q;
  }
  void take_values(const Value& pass, const Strip& strip);
  Value row_sum(int64_t h);
  // factor: what O' is multiplied by at a row's end. lse: the log-sum-exp.
  struct RowEnd {
    Value factor, lse;
  };
  RowEnd join_sink(const Place& p, const Value& sum, int64_t h);
  RowEnd row_end(const Place& p, int64_t h);
  void finish(const char* region, const Place& p,
              const Value& rows_done) override;
  void send_row(const Place& p);

  // Used by calls in parts.
  Value row_flag(const Value& row, int32_t flag);
  bool resumes() const { return s_.in_parts && s_.late; }
  bool leaves() const { return s_.in_parts && !s_.late; }
  Value resumed(const Place& p);
  Value state_slot(const Value& turn) {
    return w_.bit_and(turn, number(kStateRing - 1));
  }
  Value state_in_hbm(const Place& p);
  Value state_of(const Value& slot, int64_t first, int64_t rows, int64_t query,
                 int64_t queries);
  void next_row(const Value& first, const Place& p, const Value& turn) override;
  void resume(const Place& p) override;
  void leave_row(const Place& p, const Value& left_before);
  Value after_row(const Value& done, const Place& p,
                  const Value& ends) override;
  void before_loop() override {
    copy_ids();
    clear_sums();
  }
  void wait_out();
  void wait_last(const Value& rows_done) override;
  void clear_sums();

  Value values_;  // V of the strip's head (take_values)
};

// Whether one of the pass's steps has class 3.
Value Forward::has_vetoed(const Place& p) {
  Value any = w_.constant(0);
  for (int64_t t = 0; t < s_.tiles_per_pass; ++t) {
    const Value tile = word(p.at, t);
    any = w_.bit_or(any, w_.bit_and(tile, w_.shift_right(tile, 1)));
  }
  return is_true(w_.bit_and(any, w_.constant(4)));
}

// Sets V of vetoed keys to 0, so that no sum gets 0 * NaN.
void Forward::clean(const Value& pass, const Place& p) {
  w_.if_then(has_vetoed(p), [&] {
    const std::vector<int64_t> tile = s_.tile_of(keys_, s_.v_head_dim);
    const Value ids = tokens_last(s_.v_head_dim) ? whole(key_line(p), tile)
                                                 : key_column(p, s_.v_head_dim);
    const Value kept = seen(ids);
    for (int64_t h = 0; h < kv_heads_; ++h) {
      const Value slot = slot_of(pass, kv_heads_, h);
      const Value v = load_slot("v_ring", slot);
      store_slot(w_.select(kept, v, w_.zeros(v.type)), "v_ring", slot);
    }
  });
}

std::optional<Value> Forward::has_strays_in(const Value& pass) {
  if (!s_.any_numbers) return {};
  return has_strays({"v_ring"}, slot_of(pass), kv_heads_);
}

// A key with a stray in V gets 0 there, and scores that are NaN.
void Forward::repair(const Value& pass) {
  for (int64_t h = 0; h < kv_heads_; ++h) {
    take_strays_of_keys(slot_of(pass, kv_heads_, h));
  }
}

// The softmax of the stored scores, added to the row's sums.
void Forward::absorb(const Value& pass, const Place& p, const Strip& strip) {
  const std::vector<int64_t> line = {kSublanes, queries_};
  const Value first = is_true(is_first(word(p.at)));
  const Value c = unit_log2();
  Value old_most = most_before(first, strip);
  std::optional<Value> old_sum;
  if (!s_.rounded_sum) old_sum = sum_before(first, "sum", strip);
  if (resumes()) {
    const Value goes_on = resumed(p);
    const Value slot = of_head(state_slot(*p.turn), heads_, strip.head);
    const Value most_there =
        state_of(slot, 0, kSublanes, strip.first, queries_);
    old_most = w_.select(goes_on, most_there, old_most);
    if (old_sum) {
      const Value sum_there =
          state_of(slot, kSublanes, kSublanes, strip.first, queries_);
      old_sum = w_.select(goes_on, sum_there, *old_sum);
    }
  }
  const Value most = w_.max(old_most, load_of("scores_max", strip, kSublanes));
  const Value fallen = w_.sub(old_most, most);
  const Value shrink = w_.exp2(w_.mul(fallen, w_.splat(c, line)));

  const std::vector<int64_t> tile = tile_shape();
  const Value one_most = w_.first_row(most);
  const Value scaled_most = w_.mul(one_most, w_.splat(c, {1, queries_}));
  const Value scores = load_of("scores", strip, keys_);
  const Value scaled = w_.mul(scores, w_.splat(c, tile));
  const Value p_tile = w_.exp2(w_.sub(scaled, whole(scaled_most, tile)));
  if (old_sum) {
    const Value part = parts_of(p_tile);
    store_of(w_.add(w_.mul(*old_sum, shrink), part), "sum", strip);
  }
  store_of(most, "most", strip);

  if (strip.first == 0) take_values(pass, strip);
  const int32_t of_keys = turned() ? 1 : 0;
  const Value product = w_.matmul(values_, of_keys, narrow(p_tile), 0);
  const Value sums = load_of("sums", strip, sum_rows(s_));
  const Value kept = w_.mul(sums, whole(w_.first_row(shrink), sums.type.shape));
  store_of(w_.add(kept, product), "sums", strip);
}

// Loads V once per head, at its first strip, and transposes it here because the
// product would transpose it again for each strip.
void Forward::take_values(const Value& pass, const Strip& strip) {
  const int64_t kv_head = strip.head * kv_heads_ / heads_;
  values_ = load_slot("v_ring", slot_of(pass, kv_heads_, kv_head));
  if (turned() && !tokens_last(s_.v_head_dim)) values_ = w_.transpose(values_);
  if (!s_.rounded_sum) return;
  std::vector<int64_t> ones = {keys_, kOnes};
  if (turned()) std::swap(ones[0], ones[1]);
  const Value one = w_.to_bf16(w_.splat(w_.real(1), ones));
  values_ = w_.join(std::array{values_, one}, turned() ? 0 : 1);
}

// l of every query, [1, block_q].
Value Forward::row_sum(int64_t h) {
  if (!s_.rounded_sum) return sum_of_parts("sum", h);
  return load_of("sums", h, 1, s_.v_head_dim);
}

Forward::RowEnd Forward::join_sink(const Place& p, const Value& sum,
                                   int64_t h) {
  const std::vector<int64_t> line = {1, s_.block_q};
  const Value zero = w_.splat(w_.real(0), line);
  const Value one = w_.splat(w_.real(1), line);
  const Value no_key = w_.compare(Compare::equal, sum, zero);
  const Value sink = sink_of(head_at(p, h), line);
  const Value row_most = w_.first_row(load_of("most", h, kSublanes));
  const Value most = w_.mul(row_most, w_.splat(unit_natural(), line));
  const Value highest = w_.max(most, sink);
  const Value top = w_.select(no_key, sink, highest);
  auto from_top = [&](const Value& score, const Value& without_key) {
    const Value below = w_.sub(score, top);
    const Value power = w_.mul(below, w_.splat(log2_e(), line));
    return w_.select(no_key, without_key, w_.exp2(power));
  };
  const Value of_keys = from_top(most, zero);
  const Value of_sink = from_top(sink, one);
  const Value total = w_.add(w_.mul(sum, of_keys), of_sink);
  const Value factor = w_.div(of_keys, total);
  return {factor, w_.add(top, w_.log(total))};
}

Forward::RowEnd Forward::row_end(const Place& p, int64_t h) {
  const Value sum = row_sum(h);
  if (s_.has_sinks) return join_sink(p, sum, h);
  const std::vector<int64_t> line = {1, s_.block_q};
  const Value zero = w_.splat(w_.real(0), line);
  const Value any = w_.compare(Compare::greater, sum, zero);
  const Value inverse = w_.div(w_.splat(w_.real(1), line), sum);
  const Value most = w_.first_row(load_of("most", h, kSublanes));
  // Without a key log(sum) is -inf, and so is the log-sum-exp.
  const Value scaled = w_.mul(most, w_.splat(unit_natural(), line));
  const Value factor = w_.select(any, inverse, zero);
  return {factor, w_.add(scaled, w_.log(sum))};
}

void Forward::wait_last(const Value& rows_done) {
  if (!leaves()) return wait_out();
  const Value sent = w_.bit_and(rows_done, w_.constant(1));
  const Value left = w_.bit_and(rows_done, w_.constant(2));
  w_.if_then(is_true(sent), [&] { wait_out(); });
  w_.if_then(is_true(left), [&] {
    w_.wait_copy(w_.argument("state_out"), w_.argument("state_tile"));
  });
}

void Forward::wait_out() {
  const Value& done = w_.argument("out_copies");
  w_.wait_copy(done, w_.argument("out_tile"));
  w_.wait_copy(done, w_.argument("lse_tile"));
}

void Forward::clear_sums() {
  const Value& sums = w_.argument("sums");
  w_.store(w_.splat(w_.real(0), sums.type.shape), sums);
}

Value Forward::row_flag(const Value& row, int32_t flag) {
  const Value list = times(list_, kRowsHead + s_.rows());
  const Value at = w_.add(w_.add(list, number(kRowsHead)), row);
  const Value word = w_.load_scalar(scalars("rows"), at);
  return w_.bit_and(word, w_.constant(flag));
}

// Whether this is the first pass of a row that an earlier call had.
Value Forward::resumed(const Place& p) {
  const Value step = word(p.at);
  const Value begins = row_flag(row_of(step), kRowBegins);
  const Value goes_on = w_.compare(Compare::equal, begins, w_.constant(0));
  const Value first = is_true(is_first(step));
  return w_.bit_and(first, goes_on);
}

Value Forward::state_in_hbm(const Place& p) {
  const Value zero = w_.constant(0);
  const Value row = times(row_of(word(p.at)), s_.heads);
  const Value head = head_at(p);
  const std::array<Value, 3> at = {w_.add(row, head), zero, zero};
  return w_.slice(w_.argument("so_far"), at,
                  {heads_, state_rows(s_), s_.block_q}, 0);
}

Value Forward::state_of(const Value& slot, int64_t first, int64_t rows,
                        int64_t query, int64_t queries) {
  const std::array<Value, 3> at = {w_.to_index(slot), w_.index(first),
                                   w_.index(query)};
  return w_.reshape(w_.load(w_.argument("state_ring"), at, {1, rows, queries}),
                    {rows, queries});
}

// Fetches the row's sums while the previous pass is absorbed.
void Forward::next_row(const Value& first, const Place& p, const Value& turn) {
  if (!resumes()) return;
  w_.if_then(is_true(first), [&] {
    const Value begins = row_flag(row_of(word(p.at)), kRowBegins);
    w_.if_then(w_.compare(Compare::equal, begins, w_.constant(0)), [&] {
      const Value slot = state_slot(turn);
      const Value from = state_in_hbm(p);
      const Value to = heads_in("state_ring", slot, heads_);
      w_.start_copy(from, to, semaphore("state_copies", slot));
    });
  });
}

void Forward::resume(const Place& p) {
  if (!resumes()) return;
  const Writer::Region named(w_, "resume");
  w_.if_then(resumed(p), [&] {
    const Value slot = state_slot(*p.turn);
    const Value there = heads_in("state_ring", slot, heads_);
    w_.wait_copy(semaphore("state_copies", slot), there);
    for (int64_t h = 0; h < heads_; ++h) {
      const Value own = of_head(slot, heads_, h);
      store_of(state_of(own, state_lines(s_), sum_rows(s_), 0, s_.block_q),
               "sums", {h});
    }
  });
}

// Sends the row's state to HBM for the next call, once the copy of the previous
// such row is complete.
void Forward::leave_row(const Place& p, const Value& left_before) {
  const Writer::Region named(w_, "leave");
  const Value& done = w_.argument("state_out");
  const Value& tile = w_.argument("state_tile");
  w_.if_then(is_true(left_before), [&] { w_.wait_copy(done, tile); });
  for (int64_t h = 0; h < heads_; ++h) {
    int64_t first = 0;
    for (const char* part : {"most", "sum", "sums"}) {
      if (s_.rounded_sum && part == std::string_view("sum")) continue;
      const int64_t rows = w_.argument(part).type.shape[0] / heads_;
      const std::array<Value, 3> at = {w_.index(h), w_.index(first),
                                       w_.index(0)};
      const Value found = load_of(part, h, rows);
      w_.store(w_.reshape(found, {1, rows, s_.block_q}), tile, at);
      first += rows;
    }
  }
  w_.start_copy(tile, state_in_hbm(p), done);
  clear_sums();
}

// Bit 0: results of a row went out; bit 1: a row was left for the next call.
Value Forward::after_row(const Value& done, const Place& p, const Value& ends) {
  if (!leaves()) return w_.add(done, ends);
  const Value out = row_flag(row_of(word(p.at)), kRowEnds);
  const Value kind = w_.sub(w_.constant(2), out);
  return w_.bit_or(done, w_.mul(ends, kind));
}

// Ends a row: sends its results out, or leaves its state for the next call.
void Forward::finish(const char* region, const Place& p,
                     const Value& rows_done) {
  const Writer::Region named(w_, region);
  if (!leaves()) {
    w_.if_then(is_true(rows_done), [&] { wait_out(); });
    return send_row(p);
  }
  const Value out = row_flag(row_of(word(p.at)), kRowEnds);
  const Value sent = w_.bit_and(rows_done, w_.constant(1));
  const Value left = w_.bit_and(rows_done, w_.constant(2));
  w_.if_else(
      is_true(out),
      [&] {
        w_.if_then(is_true(sent), [&] { wait_out(); });
        send_row(p);
      },
      [&] { leave_row(p, left); });
}

// Sends the row's output and log-sum-exp, for which the previous tile's copies
// must be complete.
void Forward::send_row(const Place& p) {
  const Value& out_tile = w_.argument("out_tile");
  const int64_t dim = s_.v_head_dim;
  for (int64_t h = 0; h < heads_; ++h) {
    const RowEnd end = row_end(p, h);
    const Value sums = load_of("sums", h, dim);
    Value out = narrow(w_.mul(sums, whole(end.factor, sums.type.shape)));
    if (!tokens_last(dim)) out = w_.transpose(out);
    const std::array<Value, 3> at = {w_.index(h), w_.index(0), w_.index(0)};
    w_.store(w_.reshape(out, tiles_of(s_, 1, s_.block_q, dim)), out_tile, at);
    store_line(end.lse, "lse_tile", h);
  }
  const Value query = times(row_of(word(p.at)), s_.block_q);
  const Value& done = w_.argument("out_copies");
  const Value head = head_at(p);
  w_.start_copy(out_tile,
                tokens_of("out", head, heads_, query, s_.block_q, dim), done);
  send_lines("lse_tile", "lse", head, query);
  clear_sums();
}

}  // namespace

int64_t strip_queries(const KernelShape& s) {
  const bool is_long =
      s.block_q >= kStripTile || s.head_dim + s.v_head_dim >= kStripDims;
  const bool in_strips =
      s.dtype == Dtype::bf16 && is_long && s.block_q % kStripQueries == 0;
  return in_strips ? kStripQueries : s.block_q;
}

std::vector<Argument> forward_arguments(const KernelShape& s) {
  const int64_t ring = ring_size(s);
  const int64_t keys = s.block_kv * s.tiles_per_pass;
  const int64_t heads = s.heads_per_pass;
  const int64_t kv_heads = s.kv_heads_per_pass();
  const Element own = element_of(s);
  constexpr Element kF32 = Element::f32;
  std::vector<Argument> out = scalar_arguments(s);
  auto add = [&](std::vector<Argument> more) {
    out.insert(out.end(), more.begin(), more.end());
  };
  add({of_tokens(s, "q", own, s.heads, s.q_len, s.head_dim)});
  add_of_keys(s, "k", own, s.head_dim, out);
  add_of_keys(s, "v", own, s.v_head_dim, out);
  add(id_arguments(s));
  add(bit_arguments(s));
  std::vector<Argument> results = {
      of_tokens(s, "out", own, s.heads, s.q_len, s.v_head_dim),
      in_hbm("lse", kF32, {s.batch, s.heads, 1, s.q_len})};
  const int64_t state = state_rows(s);
  if (s.in_parts) {
    results.push_back(
        in_hbm("so_far", kF32, {s.rows() * s.heads, state, s.block_q}));
  }
  if (s.late) {
    for (const Argument& a : results)
      add({{before(a.name), a.type, a.tokens_last}});
  }
  add(results);
  // Scratch.
  auto ring_of = [&](const char* name, int64_t n, int64_t tokens, int64_t dim) {
    return in_vmem(name, own, tiles_of(s, n, tokens, dim));
  };
  add({ring_of("q_ring", ring * heads, s.block_q, s.head_dim),
       ring_of("k_ring", ring * kv_heads, keys, s.head_dim),
       ring_of("v_ring", ring * kv_heads, keys, s.v_head_dim)});
  add(id_scratch(s));
  const int64_t lines = heads * kSublanes;
  add({in_vmem("scores", kF32, {heads * keys, s.block_q}),
       in_vmem("scores_max", kF32, {lines, s.block_q}),
       in_vmem("most", kF32, {lines, s.block_q})});  // m
  if (!s.rounded_sum) {
    add({in_vmem("sum", kF32, {lines, s.block_q})});  // l, in eight parts
  }
  add({in_vmem("sums", kF32, {heads * sum_rows(s), s.block_q}),  // O'
       ring_of("out_tile", heads, s.block_q, s.v_head_dim),
       in_vmem("lse_tile", kF32, {heads, 1, s.block_q}),
       semaphores("q_copies", {ring}), semaphores("kv_copies", {ring}),
       semaphores("id_copies", {}), semaphores("out_copies", {})});
  add(bit_scratch(s, ring));
  if (s.in_parts) {
    add({in_vmem("state_ring", kF32, {kStateRing * heads, state, s.block_q}),
         in_vmem("state_tile", kF32, {heads, state, s.block_q}),
         semaphores("state_copies", {kStateRing}),
         semaphores("state_out", {})});
  }
  add(page_scratch(s));
  return out;
}

std::string forward_kernel(const KernelShape& shape) {
  return Forward(shape).write("tessera_forward");
}

}  // namespace tessera::mosaic
