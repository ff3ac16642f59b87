// lanes/mosaic/backward_rows.cc: work on tiles of queries: before a head's
// passes with the sink's gradient, and sending dQ after them.
#include <algorithm>
#include <array>
#include <bit>

#include "lanes/mosaic/backward_parts.h"

namespace tessera::mosaic {

int64_t row_ring_size(const KernelShape& s) {
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(rows_ahead(s.heads_per_pass) + 1)));
}

std::vector<Backward::OfTokens> Backward::row_arrays() const {
  std::vector<OfTokens> out = {{"out", "out_ring", s_.v_head_dim},
                               {"dout", "row_dout_ring", s_.v_head_dim},
                               {"lse", "lse_ring", 0}};
  if (s_.has_dlse) out.push_back({"dlse", "dlse_ring", 0});
  if (s_.any_numbers) out.push_back({"q", "row_q_ring", s_.head_dim});
  return out;
}

// In a call in parts, where `rows` of the current list or chunk begins.
Value Backward::first_rows_word() {
  const Value& list = s_.in_chunks() ? chunk_.steps : list_;
  return times(list, kRowsHead + s_.rows_at_once());
}

Value Backward::rows_word(int64_t at) {
  const Value list = first_rows_word();
  return w_.load_scalar(scalars("rows"), w_.add(list, number(at)));
}

Value Backward::rows() {
  if (s_.in_chunks()) return chunk_.rows;
  return s_.in_parts ? rows_word(0) : number(rows_);
}

Backward::Row Backward::row_at(const Value& turn) {
  if (!s_.in_parts) {
    if (!s_.in_chunks()) return {turn, turn, {}, {}, {}};
    return {w_.add(chunk_.first_row, turn), turn, {}, {}, {}};
  }
  const Value list = first_rows_word();
  const Value at = w_.add(w_.add(list, number(kRowsHead)), turn);
  const Value word = w_.load_scalar(scalars("rows"), at);
  const Value zero = w_.constant(0);
  const Value begins = w_.bit_and(word, w_.constant(kRowBegins));
  const Value ends = w_.bit_and(word, w_.constant(kRowEnds));
  const Value number = w_.shift_right(word, kRowShift);
  return {number, in_scratch(number), is_true(begins),
          w_.compare(Compare::equal, begins, zero), is_true(ends)};
}

Value Backward::sums_so_far(const Value& head, const Value& r) {
  const Value zero = w_.constant(0);
  const Value first = w_.add(times(r, s_.heads), head);
  const std::array<Value, 3> at = {first, zero, zero};
  return w_.slice(w_.argument("dq_so_far"), at,
                  {heads_, s_.head_dim, s_.block_q}, 0);
}

void Backward::fetch_row(const char* region, const Value& head,
                         const Value& turn) {
  const Writer::Region named(w_, region);
  const Value slot = in_slots(turn, row_ring_size(s_));
  const Value done = semaphore("row_copies", slot);
  const Row row = row_at(turn);
  const Value query = times(row.number, s_.block_q);
  const Value zero = w_.constant(0);
  for (const auto& [array, ring, dim] : row_arrays()) {
    const Value& from = w_.argument(array);
    const bool last = dim == 0 || tokens_last(dim);
    const std::array<Value, 4> at = {batch_row_, head, last ? zero : query,
                                     last ? query : zero};
    const std::vector<int64_t>& tile = w_.argument(ring).type.shape;
    const Value part = w_.slice(from, at, {1, heads_, tile[1], tile[2]}, 1);
    w_.start_copy(part, heads_in(ring, slot, heads_), done);
  }
  if (!row.goes_on) return;
  w_.if_then(*row.goes_on, [&] {
    const Value from = sums_so_far(head, row.number);
    w_.start_copy(from, heads_in("dq_sums", row.place, heads_), done);
  });
}

// Prepares one tile of queries for the head's passes.
void Backward::prepare(const Value& head, const Value& turn) {
  const Writer::Region named(w_, "prepare");
  const Value later = w_.add(turn, number(rows_ahead(heads_)));
  w_.if_then(less(later, rows()), [&] { fetch_row("fetch_row", head, later); });
  const Value slot = in_slots(turn, row_ring_size(s_));
  const Value done = semaphore("row_copies", slot);
  for (const OfTokens& of : row_arrays()) {
    w_.wait_copy(done, heads_in(of.ring, slot, heads_));
  }
  const Row row = row_at(turn);
  // Waits count bytes: all copies must be complete before one is read.
  if (row.goes_on) {
    w_.if_else(
        *row.goes_on,
        [&] { w_.wait_copy(done, heads_in("dq_sums", row.place, heads_)); },
        [&] { clear_sums(row.place); });
  }

  const Value ids = query_ids(row.number);
  const Value is_seen = seen(ids);
  for (int64_t h = 0; h < heads_; ++h) {
    prepare_head(head, turn, row, h, {ids, is_seen});
  }
  if (s_.any_numbers) mark_row(row, slot);
}

// Whether Q, g or the log-sum-exp of a head has a stray.
void Backward::mark_row(const Row& row, const Value& slot) {
  const Value of_tiles =
      has_strays({"row_q_ring", "row_dout_ring"}, slot, heads_);
  const std::array<Value, 3> at = {w_.to_index(row.place), w_.index(0),
                                   w_.index(0)};
  const Value found = w_.load(w_.argument("lses"), at, {1, heads_, s_.block_q});
  const Value lines = w_.reshape(found, {heads_, s_.block_q});
  const Value of_lines = any_true(w_.invert(is_finite(lines)));
  const Value any = w_.bit_or(of_tiles, of_lines);
  const Value mark = w_.select(any, w_.constant(1), w_.constant(0));
  w_.store_scalar(mark, w_.argument("row_marks"), row.place);
}

void Backward::clear_sums(const Value& r) {
  for (int64_t h = 0; h < heads_; ++h) {
    store_slot(w_.splat(w_.real(0), {s_.head_dim, s_.block_q}), "dq_sums",
               of_head(r, heads_, h));
  }
}

void Backward::prepare_head(const Value& first_head, const Value& turn,
                            const Row& own, int64_t h, const RowIds& row_ids) {
  const auto& [ids, is_seen] = row_ids;
  const Value& r = own.place;
  const Value head = with_head(first_head, h);
  const std::vector<int64_t> line = {1, s_.block_q};
  const Value slot = of_head(in_slots(turn, row_ring_size(s_)), heads_, h);
  auto turned = [&](const char* ring) {
    const Value found = load_slot(ring, slot);
    return tokens_last(s_.v_head_dim) ? found : w_.transpose(found);
  };
  const Value out = turned("out_ring");
  const Value dout = turned("row_dout_ring");
  const Value wide_out = wide(out);
  const Value wide_dout = wide(dout);
  const Value products = w_.mul(wide_out, wide_dout);
  const Value zero = w_.splat(w_.real(0), line);
  const Value all = w_.reshape(w_.reduce_sum(products, 0), line);
  Value delta = w_.select(is_seen, all, zero);

  const Value lse = load_slot("lse_ring", slot);
  // With any_numbers the log-sum-exp may be NaN.
  const Compare how = s_.any_numbers ? Compare::not_equal : Compare::greater;
  const Value finite =
      w_.compare(how, lse, w_.splat(w_.real(-kInfinity), line));
  const Value live = w_.bit_and(finite, is_seen);
  const Value log2e = w_.splat(w_.real(static_cast<float>(kLog2E)), line);
  Value most = w_.select(live, w_.mul(lse, log2e), zero);
  SinkRow row = {ids, is_seen, lse, delta, {}};
  if (s_.has_sinks) most = base_with_sink(row);
  if (s_.has_dlse) {
    row.dlse = load_slot("dlse_ring", slot);
    delta = w_.sub(delta, w_.select(live, *row.dlse, zero));
  }
  if (s_.has_sinks) add_sink(head, own, row, h);
  const std::array<Value, 3> at = {w_.to_index(r), w_.index(h), w_.index(0)};
  const std::vector<int64_t> one_line = {1, 1, s_.block_q};
  w_.store(w_.reshape(most, one_line), w_.argument("lses"), at);
  w_.store(w_.reshape(delta, one_line), w_.argument("deltas"), at);
  if (s_.in_parts) return;
  const Value sums_at = of_head(r, heads_, h);
  store_slot(w_.splat(w_.real(0), {s_.head_dim, s_.block_q}), "dq_sums",
             sums_at);
}

// The log-sum-exp with a sink, in base 2; NaN stays NaN. It is bounded by the
// lowest finite number, since -inf - -inf would be NaN, and with any_numbers by
// the highest too, because +inf marks a stray there.
Value Backward::base_with_sink(const SinkRow& row) {
  const std::vector<int64_t> line = {1, s_.block_q};
  const Value product = w_.mul(row.lse, w_.splat(log2_e(), line));
  Value bounded = w_.max(product, w_.splat(w_.real(kLowest), line));
  if (s_.any_numbers) {
    const Value highest = w_.splat(w_.real(-kLowest), line);
    const Value above = w_.compare(Compare::greater, bounded, highest);
    bounded = w_.select(above, highest, bounded);
  }
  return w_.select(row.is_seen, bounded, w_.splat(w_.real(0), line));
}

// A call in parts may have no row, so its sum is cleared before any row.
void Backward::clear_sinks() {
  const Value& sums = w_.argument("sink_line");
  w_.store(w_.splat(w_.real(0), sums.type.shape), sums);
}

// Only the first call that has a row counts its queries.
void Backward::add_sink(const Value& head, const Row& at, const SinkRow& row,
                        int64_t h) {
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
  Value least = w_.constant(kNotThere);
  if (at.begins) {
    least = w_.select(*at.begins, least, w_.constant(INT32_MAX));
  }
  const Value is_there =
      w_.compare(Compare::greater, row.ids, w_.splat(least, line));
  const Value own = w_.select(is_there, part, zero);
  if (s_.in_parts) {
    store_of(w_.add(load_of("sink_line", heads_, h), own), "sink_line", heads_,
             h);
    return;
  }
  const Value is_start = w_.compare(Compare::equal, at.place, w_.constant(0));
  const Value before =
      w_.select(is_start, zero, load_of("sink_line", heads_, h));
  store_of(w_.add(before, own), "sink_line", heads_, h);
}

Value Backward::place_of_sink(const Value& head) {
  const Value zero = w_.constant(0);
  const std::array<Value, 3> at = {head, zero, zero};
  return w_.slice(w_.argument("dsink_logits"), at, {1, 1, kLanes}, 1);
}

// Sends the sum over batch rows and chunks so far; the last batch row's
// overwrites the others.
void Backward::finish_sink(const Value& head, int64_t h) {
  const Value parts = load_of("sink_line", heads_, h);
  const Value sum = w_.reshape(w_.reduce_sum(parts, 1), {1, 1});
  const Value turn =
      s_.in_chunks() ? w_.add(batch_row_, chunk_.number) : batch_row_;
  const Value is_start = w_.compare(Compare::equal, turn, w_.constant(0));
  const Value found = load_slot("sink_sums", head);
  const Value before =
      w_.select(is_start, w_.splat(w_.real(0), {1, kLanes}), found);
  store_slot(w_.add(before, whole(sum, {1, kLanes})), "sink_sums", head);
  const Value from = in_ring("sink_sums", head);
  w_.start_copy(from, place_of_sink(head), w_.argument("sink_copies"));
}

void Backward::wait_row(const Value& sent) {
  const Value slot = in_slots(sent, kOutRing);
  const Value done = semaphore("dq_copies", slot);
  w_.wait_copy(done, heads_in("dq_ring", slot, heads_));
}

// `sent`: tiles of dQ that went out before this one.
void Backward::finish_row(const Value& head, const Row& row,
                          const Value& sent) {
  const Writer::Region named(w_, "finish_row");
  w_.if_then(w_.compare(Compare::greater_or_equal, sent, number(kOutRing)),
             [&] { wait_row(sent); });
  const Value slot = in_slots(sent, kOutRing);
  const Value scale = w_.real(static_cast<float>(s_.scale));
  for (int64_t h = 0; h < heads_; ++h) {
    Value sums = load_slot("dq_sums", of_head(row.place, heads_, h));
    sums = w_.mul(sums, w_.splat(scale, sums.type.shape));
    if (!tokens_last(s_.head_dim)) sums = w_.transpose(sums);
    const Value own = narrow(sums);
    store_slot(own, "dq_ring", of_head(slot, heads_, h));
  }
  const Value query = times(row.number, s_.block_q);
  const Value from = heads_in("dq_ring", slot, heads_);
  const Value place =
      tokens_of("dq", head, heads_, query, s_.block_q, s_.head_dim);
  w_.start_copy(from, place, semaphore("dq_copies", slot));
}

void Backward::finish_rows(const Value& head) {
  for_each(rows(), [&](const Value& r) { finish_row(head, row_at(r), r); });
  if (s_.in_chunks()) {
    const Writer::Region named(w_, "wait_rows");
    for_each(w_.min(rows(), number(kOutRing)),
             [&](const Value& i) { wait_row(i); });
    return;
  }
  for (int64_t r = std::max<int64_t>(rows_ - kOutRing, 0); r < rows_; ++r) {
    wait_row(number(r));
  }
}

// Sends dQ of rows that end in this call, and leaves dQ' of the others in HBM.
void Backward::finish_parts(const Value& head) {
  const Value zero = w_.constant(0);
  const Value& done = w_.argument("sums_copies");
  const Value sent = w_.for_each(
      zero, rows(), {zero},
      [&](const Value& turn, std::span<const Value> c) -> std::vector<Value> {
        const Row row = row_at(turn);
        w_.if_else(
            *row.ends, [&] { finish_row(head, row, c[0]); },
            [&] {
              const Value to = sums_so_far(head, row.number);
              w_.start_copy(heads_in("dq_sums", row.place, heads_), to, done);
            });
        return {w_.add(c[0], w_.select(*row.ends, w_.constant(1), zero))};
      })[0];
  {
    const Writer::Region named(w_, "wait_rows");
    for_each(w_.min(sent, number(kOutRing)),
             [&](const Value& i) { wait_row(i); });
  }
  const Writer::Region named(w_, "wait_left");
  for_each(w_.sub(rows(), sent), [&](const Value&) {
    w_.wait_copy(done, heads_in("dq_sums", zero, heads_));
  });
}

}  // namespace tessera::mosaic
