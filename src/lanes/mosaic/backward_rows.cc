// lanes/mosaic/backward_rows.cc: tiles of queries before a head's passes, with
// the sink's gradient, and dQ behind them.
#include <array>
#include <bit>

#include "lanes/mosaic/backward_parts.h"

namespace tessera::mosaic {

int64_t row_ring_size(const KernelShape& s) {
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(rows_ahead(s.heads_per_pass) + 1)));
}

std::vector<std::pair<const char*, const char*>> Backward::row_arrays() const {
  std::vector<std::pair<const char*, const char*>> out = {
      {"out", "out_ring"}, {"dout", "row_dout_ring"}, {"lse", "lse_ring"}};
  if (s_.has_dlse) out.emplace_back("dlse", "dlse_ring");
  return out;
}

void Backward::fetch_row(const char* region, const Value& head,
                         const Value& r) {
  const Writer::Region named(w_, region);
  const Value slot = in_slots(r, row_ring_size(s_));
  const Value done = semaphore("row_copies", slot);
  const Value query = times(r, s_.block_q);
  const Value zero = w_.constant(0);
  for (const auto& [array, ring] : row_arrays()) {
    const Value& from = w_.argument(array);
    const bool line = from.type.shape[2] == 1;
    const std::array<Value, 4> at = {batch_row_, head, line ? zero : query,
                                     line ? query : zero};
    const std::vector<int64_t>& tile = w_.argument(ring).type.shape;
    const Value part = heads_of(array, at, heads_, tile[1], tile[2]);
    w_.start_copy(part, heads_in(ring, slot, heads_), done);
  }
}

// One tile of queries: all that the head's passes need of it.
void Backward::prepare(const Value& head, const Value& r) {
  const Writer::Region named(w_, "prepare");
  const Value later = w_.add(r, number(rows_ahead(heads_)));
  w_.if_then(less(later, number(rows_)),
             [&] { fetch_row("fetch_row", head, later); });
  const Value slot = in_slots(r, row_ring_size(s_));
  const Value done = semaphore("row_copies", slot);
  for (const auto& [array, ring] : row_arrays()) {
    w_.wait_copy(done, heads_in(ring, slot, heads_));
  }

  const Value ids = query_ids(r);
  const Value is_seen = seen(ids);
  for (int64_t h = 0; h < heads_; ++h) {
    prepare_head(head, r, h, {ids, is_seen});
  }
}

void Backward::prepare_head(const Value& first_head, const Value& r, int64_t h,
                            const RowIds& row_ids) {
  const auto& [ids, is_seen] = row_ids;
  const Value head = with_head(first_head, h);
  const std::vector<int64_t> line = {1, s_.block_q};
  const Value slot = of_head(in_slots(r, row_ring_size(s_)), heads_, h);
  const Value out = w_.transpose(load_slot("out_ring", slot));
  const Value dout = w_.transpose(load_slot("row_dout_ring", slot));
  const Value wide_out = wide(out);
  const Value wide_dout = wide(dout);
  const Value products = w_.mul(wide_out, wide_dout);
  const Value zero = w_.splat(w_.real(0), line);
  const Value all = w_.reshape(w_.reduce_sum(products, 0), line);
  Value delta = w_.select(is_seen, all, zero);

  const Value lse = load_slot("lse_ring", slot);
  const Value finite =
      w_.compare(Compare::greater, lse, w_.splat(w_.real(-kInfinity), line));
  const Value live = w_.bit_and(finite, is_seen);
  const Value log2e = w_.splat(w_.real(static_cast<float>(kLog2E)), line);
  Value most = w_.select(live, w_.mul(lse, log2e), zero);
  SinkRow row = {ids, is_seen, lse, delta, {}};
  if (s_.has_sinks) most = base_with_sink(row);
  if (s_.has_dlse) {
    row.dlse = load_slot("dlse_ring", slot);
    delta = w_.sub(delta, w_.select(live, *row.dlse, zero));
  }
  if (s_.has_sinks) add_sink(head, r, row, h);
  const std::array<Value, 3> at = {w_.to_index(r), w_.index(h), w_.index(0)};
  const std::vector<int64_t> one_line = {1, 1, s_.block_q};
  w_.store(w_.reshape(most, one_line), w_.argument("lses"), at);
  w_.store(w_.reshape(delta, one_line), w_.argument("deltas"), at);
  const Value sums_at = of_head(r, heads_, h);
  store_slot(w_.splat(w_.real(0), {s_.head_dim, s_.block_q}), "dq_sums",
             sums_at);
}

// A log-sum-exp that holds a sink, in base 2: NaN stays NaN. What is below all
// numbers is the lowest, since -inf - -inf would be NaN.
Value Backward::base_with_sink(const SinkRow& row) {
  const std::vector<int64_t> line = {1, s_.block_q};
  const Value product = w_.mul(row.lse, w_.splat(log2_e(), line));
  const Value bounded = w_.max(product, w_.splat(w_.real(kLowest), line));
  return w_.select(row.is_seen, bounded, w_.splat(w_.real(0), line));
}

void Backward::add_sink(const Value& head, const Value& r, const SinkRow& row,
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
  const Value is_there = w_.compare(Compare::greater, row.ids,
                                    w_.splat(w_.constant(kNotThere), line));
  const Value own = w_.select(is_there, part, zero);
  const Value is_start = w_.compare(Compare::equal, r, w_.constant(0));
  const Value before =
      w_.select(is_start, zero, load_of("sink_line", heads_, h));
  store_of(w_.add(before, own), "sink_line", heads_, h);
}

Value Backward::place_of_sink(const Value& head) {
  const Value zero = w_.constant(0);
  const std::array<Value, 3> at = {head, zero, zero};
  return w_.slice(w_.argument("dsink_logits"), at, {1, 1, kLanes}, 1);
}

// What batch rows have given so far goes out; the last one's stays.
void Backward::finish_sink(const Value& head, int64_t h) {
  const Value parts = load_of("sink_line", heads_, h);
  const Value sum = w_.reshape(w_.reduce_sum(parts, 1), {1, 1});
  const Value is_start = w_.compare(Compare::equal, batch_row_, w_.constant(0));
  const Value found = load_slot("sink_sums", head);
  const Value before =
      w_.select(is_start, w_.splat(w_.real(0), {1, kLanes}), found);
  store_slot(w_.add(before, whole(sum, {1, kLanes})), "sink_sums", head);
  const Value from = in_ring("sink_sums", head);
  w_.start_copy(from, place_of_sink(head), w_.argument("sink_copies"));
}

void Backward::wait_row(const Value& r) {
  const Value slot = in_slots(r, kOutRing);
  const Value done = semaphore("dq_copies", slot);
  w_.wait_copy(done, heads_in("dq_ring", slot, heads_));
}

void Backward::finish_row(const Value& head, const Value& r) {
  const Writer::Region named(w_, "finish_row");
  w_.if_then(w_.compare(Compare::greater_or_equal, r, number(kOutRing)),
             [&] { wait_row(r); });
  const Value slot = in_slots(r, kOutRing);
  const Value scale = w_.real(static_cast<float>(s_.scale));
  for (int64_t h = 0; h < heads_; ++h) {
    Value sums = load_slot("dq_sums", of_head(r, heads_, h));
    sums = w_.mul(sums, w_.splat(scale, sums.type.shape));
    const Value upright_sums = narrow(w_.transpose(sums));
    store_slot(upright_sums, "dq_ring", of_head(slot, heads_, h));
  }
  const std::array<Value, 4> to = {batch_row_, head, times(r, s_.block_q),
                                   w_.constant(0)};
  const Value from = heads_in("dq_ring", slot, heads_);
  const Value place = heads_of("dq", to, heads_, s_.block_q, s_.head_dim);
  w_.start_copy(from, place, semaphore("dq_copies", slot));
}

}  // namespace tessera::mosaic
