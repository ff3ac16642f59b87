// lanes/mosaic/backward_chunks.cc: lists in chunks of queries, and the sums of
// tiles of keys that are in more than one chunk.
#include <array>

#include "lanes/mosaic/backward_parts.h"

namespace tessera::mosaic {
namespace {

struct KeySums {
  const char *sums, *part, *so_far;
};
constexpr KeySums kKeySums[] = {{"dk_sums", "dk_part", "dk_so_far"},
                                {"dv_sums", "dv_part", "dv_so_far"}};

}  // namespace

// All chunks of the list, for the heads of one pass after another.
void Backward::chunks() {
  const Writer::Region named(w_, "heads");
  for_each(number(s_.heads_of_list() / heads_), [&](const Value& i) {
    const Value first = head_number(of_head(i, heads_, 0));
    for_each(number(s_.chunks()), [&](const Value& chunk) {
      begin_chunk(chunk);
      head(first, columns_of_list());
    });
  });
}

Value Backward::chunk_word(int64_t at) {
  const Value own = times(chunk_.steps, kChunkWords);
  return w_.load_scalar(scalars("range"),
                        w_.add(own, number(first_chunk_word(s_) + at)));
}

void Backward::begin_chunk(const Value& chunk) {
  const Writer::Region named(w_, "chunk");
  chunk_.number = chunk;
  chunk_.steps = w_.add(first_steps(), chunk);
  chunk_.first_row = times(chunk, s_.chunk_rows);
  if (s_.in_parts) {
    chunk_.rows = rows_word(0);
  } else {
    const Value left = w_.sub(number(rows_), chunk_.first_row);
    chunk_.rows = w_.min(left, number(s_.chunk_rows));
  }
  chunk_.first_column = chunk_word(kChunkFirst);
  chunk_.begins = chunk_word(kChunkBegins);
  chunk_.ends = chunk_word(kChunkEnds);
  if (s_.page > 0) return;
  const Value& range = scalars("range");
  begin_ = w_.load_scalar(range, chunk_.steps);
  end_ = w_.load_scalar(range, w_.add(chunk_.steps, w_.constant(1)));
}

// Whether `head` is not number n among the heads that share its keys.
Value Backward::is_not_in_group(const Value& head, int64_t n) {
  const Value first = times(kv_head(head), group_);
  return w_.compare(Compare::not_equal, head, w_.add(first, number(n)));
}

// Whether an earlier chunk or head has added to the column's sums.
Value Backward::go_on(const Value& head, const Value& column) {
  Value is_met = less(column, chunk_.begins);
  if (!takes_turns()) return is_met;
  return w_.bit_or(is_met, is_not_in_group(head, 0));
}

// Whether a later chunk or head adds to the column's sums.
Value Backward::stay(const Value& head, const Value& column) {
  Value is_due = w_.compare(Compare::greater_or_equal, column, chunk_.ends);
  if (!takes_turns()) return is_due;
  return w_.bit_or(is_due, is_not_in_group(head, group_ - heads_));
}

Value Backward::key_sums_so_far(const char* array, const Value& column) {
  const Value& all = w_.argument(array);
  const Value zero = w_.constant(0);
  const std::array<Value, 3> at = {times(column, kv_heads_), zero, zero};
  return w_.slice(all, at, {kv_heads_, all.type.shape[1], s_.block_kv}, 0);
}

// Fetches a column's sums with its K and V.
void Backward::fetch_sums(const char* region, const Value& head,
                          const Value& column) {
  const Writer::Region named(w_, region);
  w_.if_then(go_on(head, column), [&] {
    const Value slot = column_slot(column);
    const Value done = semaphore("kv_copies", slot);
    for (const KeySums& of : kKeySums) {
      const Value from = key_sums_so_far(of.so_far, column);
      w_.start_copy(from, heads_in(of.sums, slot, kv_heads_), done);
    }
  });
}

void Backward::begin_sums(const Value& head, const Value& column) {
  w_.if_else(
      go_on(head, column),
      [&] {
        const Writer::Region inner(w_, "wait_sums");
        const Value slot = column_slot(column);
        const Value done = semaphore("kv_copies", slot);
        for (const KeySums& of : kKeySums) {
          w_.wait_copy(done, heads_in(of.sums, slot, kv_heads_));
        }
      },
      [&] {
        const Writer::Region inner(w_, "clear");
        clear_keys(column);
      });
}

// Copies a column's sums, whose ring slot is needed for another column, and
// sends the copy to HBM. Waits first for the previous such copy.
void Backward::send_sums(const Value& column, const Value& sent) {
  const Writer::Region named(w_, "send_sums");
  w_.if_then(is_true(sent), [&] { wait_parts(); });
  for (const KeySums& of : kKeySums) {
    for (int64_t h = 0; h < kv_heads_; ++h) {
      const Value sums = load_slot(of.sums, sum_slot(column, h));
      store_slot(sums, of.part, number(h));
    }
    w_.start_copy(w_.argument(of.part), key_sums_so_far(of.so_far, column),
                  w_.argument("part_copies"));
  }
}

void Backward::wait_parts() {
  for (const KeySums& of : kKeySums) {
    w_.wait_copy(w_.argument("part_copies"), w_.argument(of.part));
  }
}

// After a pass: if it `ends` a column, sends the column's sums, as gradients if
// they are complete, else as partial sums.
Backward::Done Backward::end_column(const Value& head, const Value& column,
                                    const Value& ends,
                                    std::span<const Value> done) {
  const Value part = w_.select(stay(head, column), ends, w_.constant(0));
  const Value whole = w_.sub(ends, part);
  w_.if_then(is_true(whole), [&] { finish_column(head, column, done[0]); });
  w_.if_then(is_true(part), [&] { send_sums(column, done[1]); });
  const Value columns = w_.add(done[0], whole);
  return {columns, w_.add(done[1], part)};
}

}  // namespace tessera::mosaic
