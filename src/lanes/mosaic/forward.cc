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
// and at the row's end out = (O' / l)', lse = ln 2 c m + ln l; where l is 0 no
// key was legal: out is 0 and lse -inf. With queries along the lanes the
// maximum and the sum run down the sublanes, so no step shuffles lanes, and the
// two products contract as the matrix unit likes them: Q' and P' are the
// operands that stay in it. m starts at the lowest finite number, so that
// 2^(-inf - m) is 0 and never NaN.
//
// A sink logit z is one more score without a value, which joins at the row's
// end, in natural units: with m' = ln 2 c m and n = max(m', z), or z where l is
// 0,
//
//   l' = l e^(m' - n) + e^(z - n)     out = (O' e^(m' - n) / l')'
//   lse = n + ln l'
//
// so of a row without a key lse is z, and of z = -inf all is as without one.
//
// With a softcap t a score is t tanh(scale q.k / t). Then S' is the tanh and
// nothing more, c = t log2(e), and all below the first line stands as it is: a
// score costs one multiplication and the tanh. Illegal pairs become -inf behind
// the tanh, which would make a score of it again.
//
// One loop runs over all steps of a batch row, through every head. A pass takes
// `tiles_per_pass` steps of one row, of `heads_per_pass` heads at once: they
// have one list, so what says where tiles lie and which pairs are legal is made
// once for all of them, and small tiles make passes as long as large ones. It
// issues the scores of the next pass before its own softmax, so that the matrix
// unit works on the one while the vector unit works on the other; from pass to
// pass the scores wait in vector memory. Copies of K, V and Q run `fetch_ahead`
// passes ahead through rings of buffers. Neither stops at the end of a row or a
// head.
//
// Cost of a pass on v6e, in bundles, of one tile of 512 x 512 of 8 heads: 3,730
// where it is full, 5,076 where it is not, and 475 more where it has keys to
// clean; the end of a row 870. Of one head: 655, 801, 169 and 145, and the loop
// around them, some 130, is the same. Of 256 x 256: 1,142, 1,468, 241 and 481
// of 8 heads; 302, 328, 90 and 98 of one.
//
// What a veto takes may be NaN, and must not reach a sum as 0 NaN: the host
// marks tiles with such keys (class 3, kernel_steps.h), whose V is set to 0
// there before the pass.
//
// Where ids and bounds do not say which pairs are legal, bitmaps of tiles do
// (tile_bits.h): each step of a masked pass has one, fetched with its keys.
//
// Facts come as ids: queries and keys each carry an int32, and a pair is legal
// where both are equal and key - position lies within the bounds. The host
// makes the ids (arrays.cc): documents or segments, -1 for a key and -2 for a
// query that a count, a negative id or the end of the tokens vetoes.
#include "lanes/mosaic/forward.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <tuple>
#include <vector>

#include "lanes/mosaic/parts.h"

namespace tessera::mosaic {
namespace {

constexpr double kLn2 = 0.69314718055994530942;

int64_t ring_size(const KernelShape& s) {
  // The pass in hand, the next one, and those on their way.
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(s.fetch_ahead + 2)));
}

// Columns of ones beside V, where the row sum is rounded.
constexpr int64_t kOnes = 8;

// Of O', that of the sum with them.
int64_t sum_rows(const KernelShape& s) {
  return s.v_head_dim + (s.rounded_sum ? kOnes : 0);
}

// A place in the walk over passes: the head, and the pass's first step.
struct Place {
  Value head;
  Value at;
};

class Forward : Parts {
 public:
  explicit Forward(const KernelShape& shape)
      : Parts(shape, forward_arguments(shape)),
        ring_(ring_size(shape)),
        keys_(shape.block_kv * shape.tiles_per_pass),
        heads_(shape.heads_per_pass),
        kv_heads_(shape.kv_heads_per_pass()) {}

  std::string write() {
    return function("tessera_forward", [this] { batch_row(); });
  }

 private:
  Value slot_of(const Value& count) {
    return w_.bit_and(count, w_.constant(static_cast<int32_t>(ring_ - 1)));
  }
  // Low enough for every score, and finite when it is scaled.
  Value least_score() {
    const double c = unit() * kLog2E;
    return w_.real(static_cast<float>(kLowest / std::max(1.0, 2 * c)));
  }
  Value unit_natural() {
    return w_.real(static_cast<float>(unit() * kLog2E * kLn2));
  }
  std::vector<int64_t> tile_shape() const { return {keys_, s_.block_q}; }
  // What a pass's head `h` has of an array with as many rows for each of them.
  Value load_of(const char* name, int64_t h, int64_t rows, int64_t first = 0);
  void store_of(const Value& value, const char* name, int64_t h);
  Value slot_of(const Value& count, int64_t heads, int64_t h) {
    return of_head(slot_of(count), heads, h);
  }

  Place after(const Place& p);
  // The number of the pass's head `h` among all.
  Value head_at(const Place& p, int64_t h = 0);
  void fetch(const char* region, const char* bits_region, const Place& p,
             const Value& pass, const Value& rows);
  void wait_keys(const Value& pass);
  void wait_row(const Value& first, const Value& rows);
  Value scores_at(const Value& pass, const Value& rows, int64_t h);
  void clean(const Value& pass, const Place& p);
  Value legal_pairs(const Value& pass, const Place& p);
  Value has_vetoed(const Place& p);
  Value key_column(const Place& p, int64_t lanes);
  void keep(const Value& scores, int64_t h);
  void scores(const char* clean_region, bool masked, const Value& pass,
              const Place& p, const Value& rows,
              const std::function<void(int64_t)>& beside);
  Value sum_before(const Value& first, int64_t h);
  void add_sum(const Value& before, const Value& shrink, const Value& p_tile,
               int64_t h);
  void absorb(const Value& pass, const Place& p, int64_t h);
  Value row_sum(int64_t h);
  // What O' is multiplied by at a row's end, and the log-sum-exp.
  struct RowEnd {
    Value factor, lse;
  };
  RowEnd join_sink(const Place& p, const Value& sum, int64_t h);
  RowEnd row_end(const Place& p, int64_t h);
  void finish(const char* region, const Place& p, const Value& rows_done);
  void wait_out();
  void clear_sums();
  void batch_row();

  int64_t ring_;
  int64_t keys_;
  int64_t heads_, kv_heads_;  // of a pass
};

Value Forward::load_of(const char* name, int64_t h, int64_t rows,
                       int64_t first) {
  const Value& ref = w_.argument(name);
  const int64_t own = ref.type.shape[0] / heads_;
  if (heads_ == 1 && rows == own) return w_.load(ref);
  const std::array<Value, 2> at = {w_.index(h * own + first), w_.index(0)};
  return w_.load(ref, at, {rows, s_.block_q});
}

void Forward::store_of(const Value& value, const char* name, int64_t h) {
  const Value& ref = w_.argument(name);
  const int64_t rows = ref.type.shape[0] / heads_;
  const std::array<Value, 2> at = {w_.index(h * rows), w_.index(0)};
  w_.store(value, ref, at);
}

// The next pass: of these heads, or the first one of the next.
Place Forward::after(const Place& p) {
  const Value at = w_.add(p.at, number(s_.tiles_per_pass));
  const Value over = w_.compare(Compare::greater_or_equal, at, end_);
  return {w_.select(over, w_.add(p.head, w_.constant(1)), p.head),
          w_.select(over, begin_, at)};
}

Value Forward::head_at(const Place& p, int64_t h) {
  const Value first = times(p.head, heads_);
  return head_number(h == 0 ? first : w_.add(first, number(h)));
}

void Forward::fetch(const char* region, const char* bits_region, const Place& p,
                    const Value& pass, const Value& rows) {
  const Writer::Region named(w_, region);
  const Value slot = slot_of(pass);
  const Value head = head_at(p);
  const Value kv_head = s_.heads == s_.kv_heads
                            ? head
                            : w_.div(head, number(s_.heads / s_.kv_heads));
  const Value done = semaphore("kv_copies", slot);
  const Value first = times(slot, kv_heads_);
  for (int64_t t = 0; t < s_.tiles_per_pass; ++t) {
    const Value key = times(column_of(word(p.at, t)), s_.block_kv);
    const std::array<Value, 4> from = {batch_row_, kv_head, key,
                                       w_.constant(0)};
    const std::array<Value, 3> to = {first, number(t * s_.block_kv),
                                     w_.constant(0)};
    for (const auto& [array, ring, dim] :
         {std::tuple{"k", "k_ring", s_.head_dim},
          std::tuple{"v", "v_ring", s_.v_head_dim}}) {
      const Value tile = w_.slice(w_.argument(array), from,
                                  {1, kv_heads_, s_.block_kv, dim}, 1);
      const Value place =
          w_.slice(w_.argument(ring), to, {kv_heads_, s_.block_kv, dim}, 0);
      w_.start_copy(tile, place, done);
    }
  }
  if (s_.bitmaps > 0) {
    const Value is_masked = not_all_full(p.at);
    // The scores of pass 0 are masked whatever it holds.
    const Value is_start = w_.compare(Compare::equal, pass, w_.constant(0));
    const Writer::Region inner(w_, bits_region);
    w_.if_then(w_.bit_or(is_masked, is_start), [&] { fetch_bits(p.at, slot); });
  }
  const Value head_word = word(p.at);
  w_.if_then(is_true(is_first(head_word)), [&] {
    const Value row_slot = slot_of(rows);
    const std::array<Value, 4> from = {
        batch_row_, head, times(row_of(head_word), s_.block_q), w_.constant(0)};
    const Value tile = w_.slice(w_.argument("q"), from,
                                {1, heads_, s_.block_q, s_.head_dim}, 1);
    const Value there = semaphore("q_copies", row_slot);
    w_.start_copy(tile, heads_in("q_ring", row_slot, heads_), there);
  });
}

void Forward::wait_keys(const Value& pass) {
  const Value slot = slot_of(pass);
  const Value done = semaphore("kv_copies", slot);
  w_.wait_copy(done, heads_in("k_ring", slot, kv_heads_));
  w_.wait_copy(done, heads_in("v_ring", slot, kv_heads_));
}

void Forward::wait_row(const Value& first, const Value& rows) {
  w_.if_then(is_true(first), [&] {
    const Value slot = slot_of(rows);
    const Value place = heads_in("q_ring", slot, heads_);
    w_.wait_copy(semaphore("q_copies", slot), place);
  });
}

// The ids of the pass's keys, one a sublane and the same in all lanes; -1 in
// every key of a step that fills the pass up, because it names a column again.
// (The only step of an empty row names one in which nothing is legal.)
Value Forward::key_column(const Place& p, int64_t lanes) {
  std::vector<Value> parts;
  for (int64_t t = 0; t < s_.tiles_per_pass; ++t) {
    const Value tile = word(p.at, t);
    const Value line = times(column_of(tile), s_.block_kv / kLanes);
    for (int64_t i = 0; i < s_.block_kv / kLanes; ++i) {
      Value ids = ids_at("key_ids", w_.add(line, number(i)));
      if (t > 0) {
        const Value live = is_live(tile);
        ids = w_.select(live, ids, w_.splat(w_.constant(-1), {1, kLanes}));
      }
      parts.push_back(upright(ids, lanes));
    }
  }
  return w_.join(parts, 0);
}

// Class 3 in one of the pass's steps.
Value Forward::has_vetoed(const Place& p) {
  Value any = w_.constant(0);
  for (int64_t t = 0; t < s_.tiles_per_pass; ++t) {
    const Value tile = word(p.at, t);
    any = w_.bit_or(any, w_.bit_and(tile, w_.shift_right(tile, 1)));
  }
  return is_true(w_.bit_and(any, w_.constant(4)));
}

Value Forward::scores_at(const Value& pass, const Value& rows, int64_t h) {
  const int64_t kv_head = h * kv_heads_ / heads_;
  const Value k = load_slot("k_ring", slot_of(pass, kv_heads_, kv_head));
  const Value q = load_slot("q_ring", slot_of(rows, heads_, h));
  return scores_of(w_.matmul(k, 1, q, 1));
}

// What no query may see must not reach the sums as 0 * NaN either.
void Forward::clean(const Value& pass, const Place& p) {
  w_.if_then(has_vetoed(p), [&] {
    const Value kept = seen(key_column(p, s_.v_head_dim));
    for (int64_t h = 0; h < kv_heads_; ++h) {
      const Value slot = slot_of(pass, kv_heads_, h);
      const Value v = load_slot("v_ring", slot);
      store_slot(w_.select(kept, v, w_.zeros(v.type)), "v_ring", slot);
    }
  });
}

// Of all heads of the pass.
Value Forward::legal_pairs(const Value& pass, const Place& p) {
  if (s_.bitmaps > 0) {
    const Value slot = slot_of(pass);
    wait_bits(slot);
    return legal_bits(slot, 0, s_.tiles_per_pass);
  }
  const Value key_ids = key_column(p, kLanes);
  const Value query_row = row_of(word(p.at));
  const Value ids = query_ids(query_row);
  return legal(query_row, ids, key_ids,
               [&](int64_t t) { return column_of(word(p.at, t)); });
}

// Puts the scores of the next pass and their maximum away.
void Forward::keep(const Value& scores, int64_t h) {
  store_of(scores, "scores", h);
  const Value most = w_.reshape(w_.reduce_max(scores, 0), {1, s_.block_q});
  store_of(whole(most, {kSublanes, s_.block_q}), "scores_max", h);
}

// The scores of a pass, put away; `beside` is what goes with each head's.
void Forward::scores(const char* clean_region, bool masked, const Value& pass,
                     const Place& p, const Value& rows,
                     const std::function<void(int64_t)>& beside) {
  std::optional<Value> ok;
  if (masked) {
    {
      const Writer::Region named(w_, clean_region);
      clean(pass, p);
    }
    ok = legal_pairs(pass, p);
  }
  const Value lowest = w_.splat(w_.real(-kInfinity), tile_shape());
  for (int64_t h = 0; h < heads_; ++h) {
    Value own = scores_at(pass, rows, h);
    if (ok) own = w_.select(*ok, own, lowest);
    if (beside) beside(h);
    keep(own, h);
  }
}

// The sum of unrounded probabilities so far, in eight parts.
Value Forward::sum_before(const Value& first, int64_t h) {
  const std::vector<int64_t> line = {kSublanes, s_.block_q};
  const Value row_sum = load_of("sum", h, kSublanes);
  return w_.select(first, w_.splat(w_.real(0), line), row_sum);
}

void Forward::add_sum(const Value& before, const Value& shrink,
                      const Value& p_tile, int64_t h) {
  const Value part = w_.reduce_sum(
      w_.reshape(p_tile, {keys_ / kSublanes, kSublanes, s_.block_q}), 0);
  store_of(w_.add(w_.mul(before, shrink), part), "sum", h);
}

// The softmax of the scores that are kept, and their part of the sums.
void Forward::absorb(const Value& pass, const Place& p, int64_t h) {
  const std::vector<int64_t> line = {kSublanes, s_.block_q};
  const Value first = is_true(is_first(word(p.at)));
  const Value c = unit_log2();
  const Value row_most = load_of("most", h, kSublanes);
  const Value old_most =
      w_.select(first, w_.splat(least_score(), line), row_most);
  std::optional<Value> old_sum;
  if (!s_.rounded_sum) old_sum = sum_before(first, h);
  const Value most = w_.max(old_most, load_of("scores_max", h, kSublanes));
  const Value fallen = w_.sub(old_most, most);
  const Value shrink = w_.exp2(w_.mul(fallen, w_.splat(c, line)));

  const std::vector<int64_t> tile = tile_shape();
  const Value one_most = w_.first_row(most);
  const Value scaled_most = w_.mul(one_most, w_.splat(c, {1, s_.block_q}));
  const Value scores = load_of("scores", h, keys_);
  const Value scaled = w_.mul(scores, w_.splat(c, tile));
  const Value p_tile = w_.exp2(w_.sub(scaled, whole(scaled_most, tile)));
  if (old_sum) add_sum(*old_sum, shrink, p_tile, h);
  store_of(most, "most", h);

  const int64_t kv_head = h * kv_heads_ / heads_;
  Value v = load_slot("v_ring", slot_of(pass, kv_heads_, kv_head));
  if (s_.rounded_sum) {
    const Value one = w_.to_bf16(w_.splat(w_.real(1), {keys_, kOnes}));
    v = w_.join(std::array{v, one}, 1);
  }
  const Value product = w_.matmul(v, 0, narrow(p_tile), 0);
  const Value sums = load_of("sums", h, sum_rows(s_));
  const Value kept = w_.mul(sums, whole(w_.first_row(shrink), sums.type.shape));
  store_of(w_.add(kept, product), "sums", h);
}

// l of every query, [1, block_q].
Value Forward::row_sum(int64_t h) {
  const std::vector<int64_t> line = {1, s_.block_q};
  if (!s_.rounded_sum) {
    return w_.reshape(w_.reduce_sum(load_of("sum", h, kSublanes), 0), line);
  }
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
  // Without a key log(sum) is -inf, and so is this.
  const Value scaled = w_.mul(most, w_.splat(unit_natural(), line));
  const Value factor = w_.select(any, inverse, zero);
  return {factor, w_.add(scaled, w_.log(sum))};
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

// The row's output and log-sum-exp, once the tile that went out before is away.
void Forward::finish(const char* region, const Place& p,
                     const Value& rows_done) {
  const Writer::Region named(w_, region);
  w_.if_then(is_true(rows_done), [&] { wait_out(); });
  const Value& out_tile = w_.argument("out_tile");
  const Value& lse_tile = w_.argument("lse_tile");
  for (int64_t h = 0; h < heads_; ++h) {
    const RowEnd end = row_end(p, h);
    const Value sums = load_of("sums", h, s_.v_head_dim);
    const Value out = w_.mul(sums, whole(end.factor, sums.type.shape));
    const std::array<Value, 3> at = {w_.index(h), w_.index(0), w_.index(0)};
    w_.store(
        w_.reshape(w_.transpose(narrow(out)), {1, s_.block_q, s_.v_head_dim}),
        out_tile, at);
    w_.store(w_.reshape(end.lse, {1, 1, s_.block_q}), lse_tile, at);
  }
  const Value query = times(row_of(word(p.at)), s_.block_q);
  const Value& done = w_.argument("out_copies");
  const Value zero = w_.constant(0);
  const Value head = head_at(p);
  const std::array<Value, 4> out_at = {batch_row_, head, query, zero};
  w_.start_copy(out_tile,
                w_.slice(w_.argument("out"), out_at,
                         {1, heads_, s_.block_q, s_.v_head_dim}, 1),
                done);
  const std::array<Value, 4> lse_at = {batch_row_, head, zero, query};
  w_.start_copy(
      lse_tile,
      w_.slice(w_.argument("lse"), lse_at, {1, heads_, 1, s_.block_q}, 1),
      done);
  clear_sums();
}

void Forward::batch_row() {
  const Writer::Region named(w_, "batch_row");
  const Value zero = w_.constant(0);
  const Value one = w_.constant(1);
  const Value passes =
      times(w_.div(w_.sub(end_, begin_), number(s_.tiles_per_pass)),
            s_.heads_of_list() / heads_);

  w_.comment("the first copies are on their way while the ids come");
  const Value ahead = w_.min(passes, number(s_.fetch_ahead));
  const std::vector<Value> fetched = w_.for_each(
      zero, ahead, {zero, begin_, zero},
      [&](const Value& pass, std::span<const Value> c) -> std::vector<Value> {
        const Place p{c[0], c[1]};
        fetch("first_fetch", "first_bits", p, pass, c[2]);
        const Value rows = w_.add(c[2], is_first(word(p.at)));
        const Place next = after(p);
        return {next.head, next.at, rows};
      });
  copy_ids();
  clear_sums();

  w_.comment("the scores of pass 0");
  const Place start{zero, begin_};
  wait_keys(zero);
  wait_row(one, zero);
  scores("first_clean", true, zero, start, zero, {});

  w_.comment("pass i: its softmax beside the scores of pass i + 1");
  const Value before_last = w_.sub(passes, one);
  const std::vector<Value> last = w_.for_each(
      zero, before_last,
      {start.head, start.at, after(start).at, zero, fetched[0], fetched[1],
       fetched[2], zero},
      [&](const Value& i, std::span<const Value> c) -> std::vector<Value> {
        const Writer::Region region(w_, "pass");
        const Place now{c[0], c[1]};
        const Place next{now.head, c[2]};  // its head does not matter
        const Place far{c[4], c[5]};
        const Value fetched_pass = w_.add(i, number(s_.fetch_ahead));
        w_.if_then(w_.compare(Compare::less, fetched_pass, passes),
                   [&] { fetch("fetch", "bits", far, fetched_pass, c[6]); });
        const Value far_rows = w_.add(c[6], is_first(word(far.at)));
        const Value next_pass = w_.add(i, one);
        wait_keys(next_pass);
        const Value first = is_first(word(next.at));
        const Value rows = w_.add(c[3], first);
        wait_row(first, rows);

        const Value full = all_full(next.at);
        auto body = [&](bool masked) {
          const Writer::Region inner(w_, masked ? "partial" : "full");
          scores("clean", masked, next_pass, next, rows,
                 [&](int64_t h) { absorb(i, now, h); });
        };
        w_.if_else(
            full, [&] { body(false); }, [&] { body(true); });

        const Value ends = is_last(word(now.at, s_.tiles_per_pass - 1));
        w_.if_then(is_true(ends), [&] { finish("finish", now, c[7]); });
        const Place now_after = after(now);
        const Place far_after = after(far);
        return {now_after.head, now_after.at,      after(next).at,
                rows,           far_after.head,    far_after.at,
                far_rows,       w_.add(c[7], ends)};
      });
  w_.comment("the softmax of the last pass, and the last row");
  const Place end{last[0], last[1]};
  for (int64_t h = 0; h < heads_; ++h) absorb(before_last, end, h);
  finish("last_finish", end, last[7]);
  wait_out();
}

}  // namespace

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
  add({in_hbm("q", own, {s.batch, s.heads, s.q_len, s.head_dim}),
       in_hbm("k", own, {s.batch, s.kv_heads, s.kv_len, s.head_dim}),
       in_hbm("v", own, {s.batch, s.kv_heads, s.kv_len, s.v_head_dim})});
  add(id_arguments(s));
  add(bit_arguments(s));
  add({in_hbm("out", own, {s.batch, s.heads, s.q_len, s.v_head_dim}),
       in_hbm("lse", kF32, {s.batch, s.heads, 1, s.q_len}),
       // Scratch.
       in_vmem("q_ring", own, {ring * heads, s.block_q, s.head_dim}),
       in_vmem("k_ring", own, {ring * kv_heads, keys, s.head_dim}),
       in_vmem("v_ring", own, {ring * kv_heads, keys, s.v_head_dim})});
  add(id_scratch(s));
  const int64_t lines = heads * kSublanes;
  add({in_vmem("scores", kF32, {heads * keys, s.block_q}),
       in_vmem("scores_max", kF32, {lines, s.block_q}),
       in_vmem("most", kF32, {lines, s.block_q}),  // m
       in_vmem("sum", kF32, {lines, s.block_q}),   // l, in eight parts
       in_vmem("sums", kF32, {heads * sum_rows(s), s.block_q}),  // O'
       in_vmem("out_tile", own, {heads, s.block_q, s.v_head_dim}),
       in_vmem("lse_tile", kF32, {heads, 1, s.block_q}),
       semaphores("q_copies", {ring}), semaphores("kv_copies", {ring}),
       semaphores("id_copies", {}), semaphores("out_copies", {})});
  add(bit_scratch(s, ring));
  return out;
}

std::string forward_kernel(const KernelShape& shape) {
  return Forward(shape).write();
}

}  // namespace tessera::mosaic
