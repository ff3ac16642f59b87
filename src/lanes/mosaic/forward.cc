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
// and at the row's end out = (O' / l)', lse = ln 2 c m + ln l; where l is 0 no
// key was legal: out is 0 and lse -inf. With queries along the lanes the
// maximum and the sum run down the sublanes, so no step shuffles lanes, and the
// two products contract as the matrix unit likes them: Q' and P' are the
// operands that stay in it. m starts at the lowest finite number, so that
// 2^(-inf - m) is 0 and never NaN.
//
// One loop runs over all steps of a batch row, through every head. A pass takes
// `tiles_per_pass` steps of one row. It issues the scores of the next pass
// before its own softmax, so that the matrix unit works on the one while the
// vector unit works on the other; from pass to pass the scores wait in vector
// memory. Copies of K, V and Q run `fetch_ahead` passes ahead through rings of
// buffers. Neither stops at the end of a row or a head.
//
// Cost of a pass on v6e at 512 queries and 4 tiles of 256 keys, in bundles:
// 1155 where all tiles are full, 1661 where one is not; the loop around them
// 134, the end of a row 145. The vector unit's slots alone would need 799, the
// exponentials 516. With 2 tiles a pass: 655, 873, 103, 145; 415 and 260.
//
// Facts come as ids: queries and keys each carry an int32, and a pair is legal
// where both are equal and key - position lies within the bounds. The host
// makes the ids (arrays.cc): documents or segments, -1 for a key and -2 for a
// query that a count, a negative id or the end of the tokens vetoes.
#include "lanes/mosaic/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <vector>

#include "lanes/mosaic/writer.h"

namespace tessera::mosaic {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kLog2E = 1.4426950408889634074;
constexpr double kLn2 = 0.69314718055994530942;
constexpr int64_t kSublanes = 8;

int64_t ring_size(const ForwardShape& s) {
  // The pass in hand, the next one, and those on their way.
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(s.fetch_ahead + 2)));
}

std::vector<Argument> arguments_of(const ForwardShape& s) {
  const int64_t ring = ring_size(s);
  const int64_t keys = s.block_kv * s.tiles_per_pass;
  auto array = [](Element e, std::vector<int64_t> shape) {
    return memref(Space::any, e, std::move(shape));
  };
  auto smem = [](int64_t n) { return memref(Space::smem, Element::i32, {n}); };
  auto vmem = [](Element e, std::vector<int64_t> shape) {
    return memref(Space::vmem, e, std::move(shape));
  };
  auto semaphores = [](std::vector<int64_t> shape) {
    return memref(Space::semaphore, Element::semaphore, std::move(shape));
  };
  constexpr Element kBf16 = Element::bf16;
  constexpr Element kF32 = Element::f32;
  constexpr Element kI32 = Element::i32;
  return {
      {"batch_row", scalar(kI32)},
      // Scalar prefetch.
      {"steps", smem(s.steps)},
      {"range", smem(s.batch + 1)},
      {"bounds", smem(kBoundsHead + s.batch)},
      // Inputs and outputs.
      {"q", array(kBf16, {s.batch, s.heads, s.q_len, kHeadDim})},
      {"k", array(kBf16, {s.batch, s.kv_heads, s.kv_len, kHeadDim})},
      {"v", array(kBf16, {s.batch, s.kv_heads, s.kv_len, kHeadDim})},
      {"q_ids", array(kI32, {s.batch, s.q_len / kLanes, kLanes})},
      {"kv_ids", array(kI32, {s.batch, s.kv_len / kLanes, kLanes})},
      {"out", array(kBf16, {s.batch, s.heads, s.q_len, kHeadDim})},
      {"lse", array(kF32, {s.batch, s.heads, 1, s.q_len})},
      // Scratch.
      {"q_ring", vmem(kBf16, {ring, s.block_q, kHeadDim})},
      {"k_ring", vmem(kBf16, {ring, keys, kHeadDim})},
      {"v_ring", vmem(kBf16, {ring, keys, kHeadDim})},
      {"row_ids", vmem(kI32, {s.q_len / kLanes, kLanes})},
      {"key_ids", vmem(kI32, {s.kv_len / kLanes, kLanes})},
      {"scores", vmem(kF32, {keys, s.block_q})},
      {"scores_max", vmem(kF32, {kSublanes, s.block_q})},
      {"most", vmem(kF32, {kSublanes, s.block_q})},  // m
      {"sum", vmem(kF32, {kSublanes, s.block_q})},   // l, in eight parts
      {"sums", vmem(kF32, {kHeadDim, s.block_q})},   // O'
      {"out_tile", vmem(kBf16, {s.block_q, kHeadDim})},
      {"lse_tile", vmem(kF32, {1, s.block_q})},
      {"q_copies", semaphores({ring})},
      {"kv_copies", semaphores({ring})},
      {"id_copies", semaphores({})},
      {"out_copies", semaphores({})},
  };
}

constexpr int kPrefetched = 3;
constexpr int kArrays = 7;

// A place in the walk over passes: the head, and the pass's first step.
struct Place {
  Value head;
  Value at;
};

// An op is written where its function is called, and C++ leaves the order of a
// call's arguments open: no call here has two arguments that write.
class Forward {
 public:
  explicit Forward(const ForwardShape& shape)
      : s_(shape),
        ring_(ring_size(shape)),
        keys_(shape.block_kv * shape.tiles_per_pass),
        w_(arguments_of(shape)),
        batch_row_(w_.argument("batch_row")) {}

  std::string write();

 private:
  // The fields of a packed tile.
  Value row_of(const Value& word) { return w_.shift_right(word, 18); }
  Value column_of(const Value& word) {
    return w_.bit_and(w_.shift_right(word, 4), w_.constant(0x3fff));
  }
  Value is_first(const Value& word) {
    return w_.bit_and(w_.shift_right(word, 1), w_.constant(1));
  }
  Value is_last(const Value& word) { return w_.bit_and(word, w_.constant(1)); }
  Value is_true(const Value& flag) {
    return w_.compare(Compare::not_equal, flag, w_.constant(0));
  }

  Value word(const Value& at, int64_t tile = 0) {
    return w_.load_scalar(
        w_.argument("steps"),
        tile == 0 ? at : w_.add(at, w_.constant(static_cast<int32_t>(tile))));
  }
  Value times(const Value& a, int64_t n) {
    return w_.mul(a, w_.constant(static_cast<int32_t>(n)));
  }
  Value slot_of(const Value& count) {
    return w_.bit_and(count, w_.constant(static_cast<int32_t>(ring_ - 1)));
  }
  Value row(int64_t n) { return w_.constant(static_cast<int32_t>(n)); }
  Value in_ring(const char* name, const Value& slot) {
    const Value& ring = w_.argument(name);
    const std::array<Value, 3> at = {slot, w_.constant(0), w_.constant(0)};
    return w_.slice(ring, at, {1, ring.type.shape[1], kHeadDim}, 1);
  }
  Value semaphore(const char* name, const Value& slot) {
    return w_.slice(w_.argument(name), {&slot, 1}, {1}, 1);
  }
  Value load_slot(const char* name, const Value& slot) {
    const Value& ring = w_.argument(name);
    const std::array<Value, 3> at = {w_.to_index(slot), w_.index(0),
                                     w_.index(0)};
    const int64_t rows = ring.type.shape[1];
    return w_.reshape(w_.load(ring, at, {1, rows, kHeadDim}), {rows, kHeadDim});
  }
  Value ids_at(const char* name, const Value& line) {
    const std::array<Value, 2> at = {w_.to_index(line), w_.index(0)};
    return w_.load(w_.argument(name), at, {1, kLanes});
  }
  // Low enough for every score, and finite when it is scaled.
  Value least_score() {
    const double c = s_.scale * kLog2E;
    return w_.real(static_cast<float>(kLowest / std::max(1.0, 2 * c)));
  }
  Value scale_log2() { return w_.real(static_cast<float>(s_.scale * kLog2E)); }
  std::vector<int64_t> tile_shape() const { return {keys_, s_.block_q}; }
  Value whole(const Value& a, std::vector<int64_t> shape) {
    return w_.broadcast(a, std::move(shape));
  }

  Place after(const Place& p);
  void fetch(const char* region, const Place& p, const Value& pass,
             const Value& rows);
  void wait_keys(const Value& pass);
  void wait_row(const Value& first, const Value& rows);
  Value scores_of(const Value& pass, const Place& p, const Value& rows,
                  bool masked);
  Value key_column(const Place& p);
  Value legal(const Place& p, const Value& key_ids);
  void keep(const Value& scores);
  void absorb(const Value& pass, const Place& p);
  void finish(const char* region, const Place& p, const Value& rows_done);
  void wait_out();
  void copy_ids();
  void batch_row();

  const ForwardShape& s_;
  int64_t ring_;
  int64_t keys_;
  Writer w_;
  Value batch_row_;
  Value begin_, end_;
};

// The next pass: of this head, or the first one of the next.
Place Forward::after(const Place& p) {
  const Value at = w_.add(p.at, row(s_.tiles_per_pass));
  const Value over = w_.compare(Compare::greater_or_equal, at, end_);
  return {w_.select(over, w_.add(p.head, w_.constant(1)), p.head),
          w_.select(over, begin_, at)};
}

void Forward::fetch(const char* region, const Place& p, const Value& pass,
                    const Value& rows) {
  const Writer::Region named(w_, region);
  const Value slot = slot_of(pass);
  const Value kv_head = s_.heads == s_.kv_heads
                            ? p.head
                            : w_.div(p.head, row(s_.heads / s_.kv_heads));
  const Value done = semaphore("kv_copies", slot);
  for (int64_t t = 0; t < s_.tiles_per_pass; ++t) {
    const Value key = times(column_of(word(p.at, t)), s_.block_kv);
    const std::array<Value, 4> from = {batch_row_, kv_head, key,
                                       w_.constant(0)};
    const std::array<Value, 3> to = {slot, row(t * s_.block_kv),
                                     w_.constant(0)};
    for (const auto& [array, ring] :
         {std::pair{"k", "k_ring"}, std::pair{"v", "v_ring"}}) {
      const Value tile =
          w_.slice(w_.argument(array), from, {1, 1, s_.block_kv, kHeadDim}, 2);
      const Value place =
          w_.slice(w_.argument(ring), to, {1, s_.block_kv, kHeadDim}, 1);
      w_.start_copy(tile, place, done);
    }
  }
  const Value head_word = word(p.at);
  w_.if_then(is_true(is_first(head_word)), [&] {
    const Value row_slot = slot_of(rows);
    const std::array<Value, 4> from = {batch_row_, p.head,
                                       times(row_of(head_word), s_.block_q),
                                       w_.constant(0)};
    const Value tile =
        w_.slice(w_.argument("q"), from, {1, 1, s_.block_q, kHeadDim}, 2);
    const Value place = in_ring("q_ring", row_slot);
    w_.start_copy(tile, place, semaphore("q_copies", row_slot));
  });
}

void Forward::wait_keys(const Value& pass) {
  const Value slot = slot_of(pass);
  const Value done = semaphore("kv_copies", slot);
  w_.wait_copy(done, in_ring("k_ring", slot));
  w_.wait_copy(done, in_ring("v_ring", slot));
}

void Forward::wait_row(const Value& first, const Value& rows) {
  w_.if_then(is_true(first), [&] {
    const Value slot = slot_of(rows);
    const Value done = semaphore("q_copies", slot);
    w_.wait_copy(done, in_ring("q_ring", slot));
  });
}

// The ids of the pass's keys, one a sublane and the same in all lanes; -1 in
// every key of a step that fills the pass up, because it names a column again.
// (The only step of an empty row names one in which nothing is legal.)
Value Forward::key_column(const Place& p) {
  std::vector<Value> parts;
  for (int64_t t = 0; t < s_.tiles_per_pass; ++t) {
    const Value tile = word(p.at, t);
    const Value line = times(column_of(tile), s_.block_kv / kLanes);
    for (int64_t i = 0; i < s_.block_kv / kLanes; ++i) {
      Value ids = ids_at("key_ids", w_.add(line, row(i)));
      if (t > 0) {
        const Value live = is_true(w_.bit_and(tile, w_.constant(12)));
        ids = w_.select(live, ids, w_.splat(w_.constant(-1), {1, kLanes}));
      }
      parts.push_back(w_.transpose(whole(ids, {kLanes, kLanes})));
    }
  }
  return w_.join(parts, 0);
}

Value Forward::legal(const Place& p, const Value& key_ids) {
  const std::vector<int64_t> shape = tile_shape();
  const Value query_row = row_of(word(p.at));
  std::vector<Value> ids;
  const Value line = times(query_row, s_.block_q / kLanes);
  for (int64_t i = 0; i < s_.block_q / kLanes; ++i) {
    ids.push_back(ids_at("row_ids", w_.add(line, row(i))));
  }
  const std::vector<Value> copies(static_cast<size_t>(s_.block_q / kLanes),
                                  key_ids);
  const Value all_key_ids = w_.join(copies, 1);
  Value ok =
      w_.compare(Compare::equal, all_key_ids, whole(w_.join(ids, 1), shape));
  if (!s_.has_low && !s_.has_high) return ok;

  // key - position, bounded.
  std::vector<Value> keys;
  for (int64_t t = 0; t < s_.tiles_per_pass; ++t) {
    const std::vector<int64_t> tile = {s_.block_kv, s_.block_q};
    const Value first = times(column_of(word(p.at, t)), s_.block_kv);
    const Value within = w_.iota(tile, 0);
    keys.push_back(w_.add(within, w_.splat(first, tile)));
  }
  const Value& bounds = w_.argument("bounds");
  const Value offset =
      w_.load_scalar(bounds, w_.add(batch_row_, row(kBoundsHead)));
  const Value position = w_.add(times(query_row, s_.block_q), offset);
  const Value key = w_.join(keys, 0);
  auto limit = [&](int64_t which) {
    const std::vector<int64_t> line_shape = {1, s_.block_q};
    const Value at = w_.add(position, w_.load_scalar(bounds, row(which)));
    const Value within = w_.iota(line_shape, 1);
    return whole(w_.add(within, w_.splat(at, line_shape)), shape);
  };
  if (s_.has_low) {
    ok = w_.bit_and(ok, w_.compare(Compare::greater_or_equal, key, limit(0)));
  }
  if (s_.has_high) {
    ok = w_.bit_and(ok, w_.compare(Compare::less_or_equal, key, limit(1)));
  }
  return ok;
}

Value Forward::scores_of(const Value& pass, const Place& p, const Value& rows,
                         bool masked) {
  const Value slot = slot_of(pass);
  const Value k = load_slot("k_ring", slot);
  const Value q = load_slot("q_ring", slot_of(rows));
  Value scores = w_.matmul(k, 1, q, 1);
  if (!masked) return scores;
  const Value key_ids = key_column(p);
  const Value ok = legal(p, key_ids);
  // What no query may see must not reach the sums as 0 * NaN either.
  const Value v = load_slot("v_ring", slot);
  const Value seen = w_.compare(Compare::greater_or_equal, key_ids,
                                w_.splat(w_.constant(0), key_ids.type.shape));
  const Value clean = w_.select(seen, v, w_.zeros(v.type));
  const std::array<Value, 3> at = {w_.to_index(slot), w_.index(0), w_.index(0)};
  w_.store(w_.reshape(clean, {1, keys_, kHeadDim}), w_.argument("v_ring"), at);
  return w_.select(ok, scores, w_.splat(w_.real(-kInfinity), tile_shape()));
}

// Puts the scores of the next pass and their maximum away.
void Forward::keep(const Value& scores) {
  w_.store(scores, w_.argument("scores"));
  const Value most = w_.reshape(w_.reduce_max(scores, 0), {1, s_.block_q});
  w_.store(whole(most, {kSublanes, s_.block_q}), w_.argument("scores_max"));
}

// The softmax of the scores that are kept, and their part of the sums.
void Forward::absorb(const Value& pass, const Place& p) {
  const std::vector<int64_t> line = {kSublanes, s_.block_q};
  const Value first = is_true(is_first(word(p.at)));
  const Value c = scale_log2();
  const Value& most_ref = w_.argument("most");
  const Value& sum_ref = w_.argument("sum");
  const Value row_most = w_.load(most_ref);
  const Value old_most =
      w_.select(first, w_.splat(least_score(), line), row_most);
  const Value row_sum = w_.load(sum_ref);
  const Value old_sum = w_.select(first, w_.splat(w_.real(0), line), row_sum);
  const Value most = w_.max(old_most, w_.load(w_.argument("scores_max")));
  const Value fallen = w_.sub(old_most, most);
  const Value shrink = w_.exp2(w_.mul(fallen, w_.splat(c, line)));

  const std::vector<int64_t> tile = tile_shape();
  const Value one_most = w_.first_row(most);
  const Value scaled_most = w_.mul(one_most, w_.splat(c, {1, s_.block_q}));
  const Value scores = w_.load(w_.argument("scores"));
  const Value scaled = w_.mul(scores, w_.splat(c, tile));
  const Value p_tile = w_.exp2(w_.sub(scaled, whole(scaled_most, tile)));
  const Value part = w_.reduce_sum(
      w_.reshape(p_tile, {keys_ / kSublanes, kSublanes, s_.block_q}), 0);
  w_.store(w_.add(w_.mul(old_sum, shrink), part), sum_ref);
  w_.store(most, most_ref);

  const Value& sums_ref = w_.argument("sums");
  const Value v = load_slot("v_ring", slot_of(pass));
  const Value product = w_.matmul(v, 0, w_.to_bf16(p_tile), 0);
  const Value sums = w_.load(sums_ref);
  const Value kept =
      w_.mul(sums, whole(w_.first_row(shrink), {kHeadDim, s_.block_q}));
  w_.store(w_.add(kept, product), sums_ref);
}

void Forward::wait_out() {
  const Value& done = w_.argument("out_copies");
  w_.wait_copy(done, w_.argument("out_tile"));
  w_.wait_copy(done, w_.argument("lse_tile"));
}

// The row's output and log-sum-exp, once the tile that went out before is away.
void Forward::finish(const char* region, const Place& p,
                     const Value& rows_done) {
  const Writer::Region named(w_, region);
  w_.if_then(is_true(rows_done), [&] { wait_out(); });
  const std::vector<int64_t> line = {1, s_.block_q};
  const Value zero = w_.splat(w_.real(0), line);
  const Value sum =
      w_.reshape(w_.reduce_sum(w_.load(w_.argument("sum")), 0), line);
  const Value any = w_.compare(Compare::greater, sum, zero);
  const Value inverse =
      w_.select(any, w_.div(w_.splat(w_.real(1), line), sum), zero);
  const Value& sums_ref = w_.argument("sums");
  const Value sums = w_.load(sums_ref);
  const Value out = w_.mul(sums, whole(inverse, {kHeadDim, s_.block_q}));
  w_.store(w_.to_bf16(w_.transpose(out)), w_.argument("out_tile"));
  const Value most = w_.first_row(w_.load(w_.argument("most")));
  const Value natural = w_.real(static_cast<float>(s_.scale * kLog2E * kLn2));
  // Without a key log(sum) is -inf, and so is this.
  const Value scaled = w_.mul(most, w_.splat(natural, line));
  const Value lse = w_.add(scaled, w_.log(sum));
  w_.store(lse, w_.argument("lse_tile"));
  const Value query = times(row_of(word(p.at)), s_.block_q);
  const Value& done = w_.argument("out_copies");
  const Value zero_i = w_.constant(0);
  const std::array<Value, 4> out_at = {batch_row_, p.head, query, zero_i};
  w_.start_copy(
      w_.argument("out_tile"),
      w_.slice(w_.argument("out"), out_at, {1, 1, s_.block_q, kHeadDim}, 2),
      done);
  const std::array<Value, 4> lse_at = {batch_row_, p.head, zero_i, query};
  w_.start_copy(w_.argument("lse_tile"),
                w_.slice(w_.argument("lse"), lse_at, {1, 1, 1, s_.block_q}, 2),
                done);
  w_.store(w_.splat(w_.real(0), {kHeadDim, s_.block_q}), sums_ref);
}

void Forward::copy_ids() {
  const std::array<Value, 3> at = {batch_row_, w_.constant(0), w_.constant(0)};
  const Value& done = w_.argument("id_copies");
  for (const auto& [array, scratch] :
       {std::pair{"q_ids", "row_ids"}, std::pair{"kv_ids", "key_ids"}}) {
    const Value& to = w_.argument(scratch);
    w_.start_copy(
        w_.slice(w_.argument(array), at, {1, to.type.shape[0], kLanes}, 1), to,
        done);
  }
  w_.wait_copy(done, w_.argument("row_ids"));
  w_.wait_copy(done, w_.argument("key_ids"));
}

void Forward::batch_row() {
  const Writer::Region named(w_, "batch_row");
  const Value zero = w_.constant(0);
  const Value one = w_.constant(1);
  const Value passes =
      times(w_.div(w_.sub(end_, begin_), row(s_.tiles_per_pass)), s_.heads);

  w_.comment("the first copies are on their way while the ids come");
  const Value ahead = w_.min(passes, row(s_.fetch_ahead));
  const std::vector<Value> fetched = w_.for_each(
      zero, ahead, {zero, begin_, zero},
      [&](const Value& pass, std::span<const Value> c) -> std::vector<Value> {
        const Place p{c[0], c[1]};
        fetch("first_fetch", p, pass, c[2]);
        const Value rows = w_.add(c[2], is_first(word(p.at)));
        const Place next = after(p);
        return {next.head, next.at, rows};
      });
  copy_ids();
  w_.store(w_.splat(w_.real(0), {kHeadDim, s_.block_q}), w_.argument("sums"));

  w_.comment("the scores of pass 0");
  const Place start{zero, begin_};
  wait_keys(zero);
  wait_row(one, zero);
  keep(scores_of(zero, start, zero, true));

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
        const Value fetched_pass = w_.add(i, row(s_.fetch_ahead));
        w_.if_then(w_.compare(Compare::less, fetched_pass, passes),
                   [&] { fetch("fetch", far, fetched_pass, c[6]); });
        const Value far_rows = w_.add(c[6], is_first(word(far.at)));
        const Value next_pass = w_.add(i, one);
        wait_keys(next_pass);
        const Value first = is_first(word(next.at));
        const Value rows = w_.add(c[3], first);
        wait_row(first, rows);

        // Class 2 in every step of the pass.
        Value all = word(next.at);
        Value any = all;
        for (int64_t t = 1; t < s_.tiles_per_pass; ++t) {
          const Value tile = word(next.at, t);
          all = w_.bit_and(all, tile);
          any = w_.bit_or(any, tile);
        }
        const Value all_high = w_.bit_and(all, w_.constant(8));
        const Value any_low = w_.bit_and(any, w_.constant(4));
        const Value full = w_.compare(
            Compare::equal, w_.bit_or(all_high, any_low), w_.constant(8));
        auto body = [&](bool masked) {
          const Writer::Region inner(w_, masked ? "partial" : "full");
          const Value scores = scores_of(next_pass, next, rows, masked);
          absorb(i, now);
          keep(scores);
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
  absorb(before_last, end);
  finish("last_finish", end, last[7]);
  wait_out();
}

std::string Forward::write() {
  const Value& range = w_.argument("range");
  begin_ = w_.load_scalar(range, batch_row_);
  end_ = w_.load_scalar(range, w_.add(batch_row_, w_.constant(1)));
  w_.if_then(w_.compare(Compare::less, begin_, end_), [&] { batch_row(); });

  std::string windows;
  for (int i = 0; i < kArrays; ++i) windows += i == 0 ? "{}" : ", {}";
  const auto scratch =
      static_cast<int64_t>(arguments_of(s_).size()) - 1 - kPrefetched - kArrays;
  return w_.module(
      "tessera_forward",
      fmt::format(
          "dimension_semantics = [#tpu.dimension_semantics<arbitrary>], "
          "iteration_bounds = array<i64: {}>, scalar_prefetch = {} : i64, "
          "scratch_operands = {} : i64, tpu.core_type = #tpu.core_type<tc>, "
          "window_params = [{}]",
          s_.batch, kPrefetched, scratch, windows));
}

int64_t bytes_of(const Type& type) {
  int64_t n = type.element == Element::bf16 ? 2 : 4;
  for (int64_t d : type.shape) n *= d;
  return n;
}

}  // namespace

std::string forward_kernel(const ForwardShape& shape) {
  return Forward(shape).write();
}

int64_t forward_vector_bytes(const ForwardShape& shape) {
  int64_t bytes = 0;
  for (const Argument& a : arguments_of(shape)) {
    if (a.type.space == Space::vmem) bytes += bytes_of(a.type);
  }
  return bytes;
}

int64_t forward_scalar_words(const ForwardShape& shape) {
  int64_t words = 0;
  for (const Argument& a : arguments_of(shape)) {
    if (a.type.space == Space::smem) words += a.type.shape[0];
  }
  return words;
}

}  // namespace tessera::mosaic
