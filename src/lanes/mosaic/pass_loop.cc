// lanes/mosaic/pass_loop.cc: one loop over all steps of a batch row, through
// every head.
//
// A pass takes `tiles_per_pass` steps of one row, for `heads_per_pass` heads at
// once. These heads share a list, so where tiles lie and which pairs are legal
// is computed once for all of them, and passes over small tiles are as long as
// passes over large ones. The loop issues the scores of the next pass before
// the softmax of the current one, so that the matrix unit works on the former
// while the vector unit works on the latter; the scores wait in vector memory
// from pass to pass. Copies of keys, values and queries run `fetch_ahead`
// passes ahead through rings of buffers. Neither scores nor copies stop at the
// end of a row or a head.
//
// Where ids and bounds cannot say which pairs are legal, bitmaps of tiles do
// (tile_bits.h): each step of a masked pass has one, fetched with its keys.
//
// Facts come as ids: each query and key has an int32, and a pair is legal if
// both are equal and key - position lies within the bounds. The host makes the
// ids (arrays.cc): documents or segments, -1 for a key and -2 for a query that
// a count, a negative id or the end of the tokens vetoes.
#include "lanes/mosaic/pass_loop.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

namespace tessera::mosaic {
int64_t ring_size(const KernelShape& s) {
  // The current pass, the next one, and those whose copies are under way.
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(s.fetch_ahead + 2)));
}

PassLoop::PassLoop(const KernelShape& shape,
                   const std::vector<Argument>& arguments,
                   std::vector<OfKeys> of_keys)
    : Parts(shape, arguments),
      ring_(ring_size(shape)),
      keys_(shape.block_kv * shape.tiles_per_pass),
      heads_(shape.heads_per_pass),
      kv_heads_(shape.kv_heads_per_pass()),
      of_keys_(std::move(of_keys)) {}

// Below every score, and still finite when it is scaled.
Value PassLoop::least_score() {
  const double c = unit() * kLog2E;
  return w_.real(static_cast<float>(kLowest / std::max(1.0, 2 * c)));
}

Value PassLoop::unit_natural() {
  return w_.real(static_cast<float>(unit() * kLog2E * kLn2));
}

Value PassLoop::load_of(const char* name, int64_t h, int64_t rows,
                        int64_t first) {
  const Value& ref = w_.argument(name);
  const int64_t own = ref.type.shape[0] / heads_;
  if (heads_ == 1 && rows == own) return w_.load(ref);
  const std::array<Value, 2> at = {w_.index(h * own + first), w_.index(0)};
  return w_.load(ref, at, {rows, s_.block_q});
}

Value PassLoop::load_of(const char* name, const Strip& strip, int64_t rows) {
  if (queries_ == s_.block_q) return load_of(name, strip.head, rows);
  const Value& ref = w_.argument(name);
  const int64_t own = ref.type.shape[0] / heads_;
  const std::array<Value, 2> at = {w_.index(strip.head * own),
                                   w_.index(strip.first)};
  return w_.load(ref, at, {rows, queries_});
}

void PassLoop::store_of(const Value& value, const char* name,
                        const Strip& strip) {
  const Value& ref = w_.argument(name);
  const int64_t rows = ref.type.shape[0] / heads_;
  const std::array<Value, 2> at = {w_.index(strip.head * rows),
                                   w_.index(strip.first)};
  w_.store(value, ref, at);
}

void PassLoop::for_each_strip(const std::function<void(const Strip&)>& body) {
  for (int64_t h = 0; h < heads_; ++h) {
    for (int64_t first = 0; first < s_.block_q; first += queries_) {
      body({h, first});
    }
  }
}

// The next pass of these heads, or the first one of the next heads.
Place PassLoop::after(const Place& p) {
  const Value at = w_.add(p.at, number(s_.tiles_per_pass));
  const Value over = w_.compare(Compare::greater_or_equal, at, end_);
  return {w_.select(over, w_.add(p.head, w_.constant(1)), p.head),
          w_.select(over, begin_, at)};
}

Value PassLoop::head_at(const Place& p, int64_t h) {
  const Value first = times(p.head, heads_);
  return head_number(h == 0 ? first : w_.add(first, number(h)));
}

void PassLoop::fetch_keys(const Keys& keys, const Value& key, size_t part) {
  const int64_t first = keys.tile * s_.block_kv;
  for (const OfKeys& a : of_keys_) {
    const Value tile = tokens_of(key_part(a.array, part), keys.kv_head,
                                 kv_heads_, key, s_.block_kv, a.dim);
    const Value place =
        tokens_in(a.ring, keys.slot, kv_heads_, first, s_.block_kv, a.dim);
    w_.start_copy(tile, place, keys.done);
  }
}

void PassLoop::fetch(const char* region, const char* bits_region,
                     const Place& p, const Value& pass, const Value& rows) {
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
    const Keys keys = {kv_head, first, done, t};
    in_key_part(key, [&](size_t part, const Value& there) {
      fetch_keys(keys, there, part);
    });
  }
  if (s_.bitmaps > 0) {
    const Value is_masked = not_all_full(p.at);
    // The scores of pass 0 are always masked, so it needs bitmaps.
    const Value is_start = w_.compare(Compare::equal, pass, w_.constant(0));
    const Writer::Region inner(w_, bits_region);
    w_.if_then(w_.bit_or(is_masked, is_start), [&] { fetch_bits(p.at, slot); });
  }
  const Value head_word = word(p.at);
  w_.if_then(is_true(is_first(head_word)), [&] {
    const Value row_slot = slot_of(rows);
    const Value query = times(row_of(head_word), s_.block_q);
    const Value tile =
        tokens_of("q", head, heads_, query, s_.block_q, s_.head_dim);
    const Value there = semaphore("q_copies", row_slot);
    w_.start_copy(tile, heads_in("q_ring", row_slot, heads_), there);
  });
}

void PassLoop::wait_keys(const Value& pass) {
  const Value slot = slot_of(pass);
  const Value done = semaphore("kv_copies", slot);
  for (const OfKeys& a : of_keys_) {
    w_.wait_copy(done, heads_in(a.ring, slot, kv_heads_));
  }
}

void PassLoop::wait_row(const Value& first, const Value& rows) {
  w_.if_then(is_true(first), [&] {
    const Value slot = slot_of(rows);
    const Value place = heads_in("q_ring", slot, heads_);
    w_.wait_copy(semaphore("q_copies", slot), place);
  });
}

// The ids of the pass's keys, joined from parts of 128. Keys of a filler step
// get -1, because the step names a column again. (An empty row has one step,
// which names a column without legal pairs.)
Value PassLoop::key_ids(const Place& p, int32_t dim,
                        const std::function<Value(const Value&)>& part) {
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
      parts.push_back(part(ids));
    }
  }
  return w_.join(parts, dim);
}

// Key ids, one a sublane and the same in all lanes.
Value PassLoop::key_column(const Place& p, int64_t lanes) {
  return key_ids(p, 0, [&](const Value& ids) { return upright(ids, lanes); });
}

// Key ids, one a lane.
Value PassLoop::key_line(const Place& p) {
  return key_ids(p, 1, [](const Value& ids) { return ids; });
}

// The queries of a strip that begins at `first`, from a slot of the ring.
Value PassLoop::load_queries(const Value& slot, int64_t first) {
  std::array<Value, 3> at = {w_.to_index(slot), w_.index(first), w_.index(0)};
  if (tokens_last(s_.head_dim)) std::swap(at[1], at[2]);
  const std::vector<int64_t> shape = s_.tile_of(queries_, s_.head_dim);
  const Value q = w_.load(w_.argument("q_ring"), at, {1, shape[0], shape[1]});
  return w_.reshape(q, shape);
}

Value PassLoop::scores_at(const Value& pass, const Value& rows,
                          const Strip& strip) {
  const int64_t kv_head = strip.head * kv_heads_ / heads_;
  const Value k = load_slot("k_ring", slot_of(pass, kv_heads_, kv_head));
  const Value q = load_queries(slot_of(rows, heads_, strip.head), strip.first);
  const int32_t dim = tokens_last(s_.head_dim) ? 0 : 1;
  return scores_of(w_.matmul(k, dim, q, dim));
}

// The legal pairs of each strip of one head; the pass's heads share them.
std::vector<Value> PassLoop::legal_pairs(const Value& pass, const Place& p) {
  std::vector<Value> out;
  if (s_.bitmaps > 0) {
    const Value slot = slot_of(pass);
    for (int64_t first = 0; first < s_.block_q; first += queries_) {
      out.push_back(legal_bits(slot, 0, s_.tiles_per_pass, first));
    }
    return out;
  }
  const Value key_ids = key_column(p, kLanes);
  const Value query_row = row_of(word(p.at));
  for (int64_t first = 0; first < s_.block_q; first += queries_) {
    const Value ids = query_ids(query_row, first);
    out.push_back(legal(
        query_row, ids, key_ids,
        [&](int64_t t) { return column_of(word(p.at, t)); }, first));
  }
  return out;
}

// Stores the scores of the next pass and their maximum.
void PassLoop::keep(const Value& scores, const Strip& strip) {
  store_of(scores, "scores", strip);
  const Value most = w_.reshape(w_.reduce_max(scores, 0), {1, queries_});
  store_of(whole(most, {kSublanes, queries_}), "scores_max", strip);
}

// Makes and stores the scores of a pass; `beside` is called with each strip.
void PassLoop::scores(const ScoreRegions& regions, bool masked,
                      const Value& pass, const Place& p, const Value& rows,
                      const std::function<void(const Strip&)>& beside) {
  std::vector<Value> ok;
  if (masked) {
    {
      const Writer::Region named(w_, regions.clean);
      clean(pass, p);
    }
    if (s_.bitmaps > 0) wait_bits(slot_of(pass));
    ok = legal_pairs(pass, p);
  }
  const Value lowest = w_.splat(w_.real(-kInfinity), tile_shape());
  std::optional<Value> strays;
  if (masked) strays = has_strays_in(pass);
  const auto masked_by = [&](const std::vector<Value>& legal,
                             const Strip& strip, const Value& own) {
    const int64_t n = strip.first / queries_;
    return w_.select(legal[static_cast<size_t>(n)], own, lowest);
  };
  for_each_strip([&](const Strip& strip) {
    Value own = scores_at(pass, rows, strip);
    if (masked) own = masked_by(ok, strip, own);
    if (beside) beside(strip);
    keep(own, strip);
  });
  if (!strays) return;
  w_.if_then(*strays, [&] {
    const Writer::Region named(w_, regions.repair);
    repair(pass);
    const std::vector<Value> legal = legal_pairs(pass, p);
    for_each_strip([&](const Strip& strip) {
      keep(masked_by(legal, strip, scores_at(pass, rows, strip)), strip);
    });
  });
}

// The row's sum so far, in eight parts, or 0 in its first pass.
Value PassLoop::sum_before(const Value& first, const char* name,
                           const Strip& strip) {
  const std::vector<int64_t> line = {kSublanes, queries_};
  const Value row_sum = load_of(name, strip, kSublanes);
  return w_.select(first, w_.splat(w_.real(0), line), row_sum);
}

// The sum over a tile's keys, in eight parts.
Value PassLoop::parts_of(const Value& tile) {
  return w_.reduce_sum(
      w_.reshape(tile, {keys_ / kSublanes, kSublanes, queries_}), 0);
}

Value PassLoop::sum_of_parts(const char* name, int64_t h) {
  return w_.reshape(w_.reduce_sum(load_of(name, h, kSublanes), 0),
                    {1, s_.block_q});
}

// The row's maximum so far, or the least score in its first pass.
Value PassLoop::most_before(const Value& first, const Strip& strip) {
  const std::vector<int64_t> line = {kSublanes, queries_};
  const Value row_most = load_of("most", strip, kSublanes);
  return w_.select(first, w_.splat(least_score(), line), row_most);
}

void PassLoop::store_line(const Value& line, const char* tile, int64_t h) {
  const std::array<Value, 3> at = {w_.index(h), w_.index(0), w_.index(0)};
  w_.store(w_.reshape(line, {1, 1, s_.block_q}), w_.argument(tile), at);
}

void PassLoop::send_lines(const char* tile, const char* array,
                          const Value& head, const Value& query) {
  const std::array<Value, 4> at = {batch_row_, head, w_.constant(0), query};
  w_.start_copy(w_.argument(tile),
                w_.slice(w_.argument(array), at, {1, heads_, 1, s_.block_q}, 1),
                w_.argument("out_copies"));
}

void PassLoop::batch_row() {
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
  before_loop();

  w_.comment("the scores of pass 0");
  const Place start{zero, begin_};
  wait_keys(zero);
  wait_row(one, zero);
  next_row(one, start, zero);
  scores({"first_clean", "first_repair"}, true, zero, start, zero, {});

  w_.comment("pass i: its softmax beside the scores of pass i + 1");
  const Value before_last = w_.sub(passes, one);
  const std::vector<Value> last = w_.for_each(
      zero, before_last,
      {start.head, start.at, after(start).at, zero, fetched[0], fetched[1],
       fetched[2], zero},
      [&](const Value& i, std::span<const Value> c) -> std::vector<Value> {
        const Writer::Region region(w_, "pass");
        const Place now{c[0], c[1], c[3]};
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
        if (s_.in_parts) next_row(first, after(now), rows);
        resume(now);

        const Value full = all_full(next.at);
        auto body = [&](bool masked) {
          const Writer::Region inner(w_, masked ? "partial" : "full");
          scores({"clean", "repair"}, masked, next_pass, next, rows,
                 [&](const Strip& strip) { absorb(i, now, strip); });
        };
        w_.if_else(
            full, [&] { body(false); }, [&] { body(true); });

        const Value ends = is_last(word(now.at, s_.tiles_per_pass - 1));
        w_.if_then(is_true(ends), [&] { finish("finish", now, c[7]); });
        const Place now_after = after(now);
        const Place far_after = after(far);
        return {now_after.head, now_after.at,
                after(next).at, rows,
                far_after.head, far_after.at,
                far_rows,       after_row(c[7], now, ends)};
      });
  w_.comment("the softmax of the last pass, and the last row");
  const Place end{last[0], last[1], last[3]};
  resume(end);
  for_each_strip([&](const Strip& strip) { absorb(before_last, end, strip); });
  finish("last_finish", end, last[7]);
  wait_last(s_.in_parts ? after_row(last[7], end, one) : last[7]);
}

}  // namespace tessera::mosaic
