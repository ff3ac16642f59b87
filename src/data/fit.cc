// data/fit.cc: fits parts of documents into rows, longest first. Rows and
// lengths are found with bit sets and counting sort in constant time per part,
// without trees or search.
#include "data/fit.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <queue>
#include <utility>

#include "base/integers.h"
#include "data/number_set.h"

namespace tessera::data {
namespace {

// An array that is not cleared; each number is written before it is read.
using Unset = std::unique_ptr<int32_t[]>;
Unset unset(size_t n) { return std::make_unique_for_overwrite<int32_t[]>(n); }

// Parts by length, then by input order: those of length n are order[start[n],
// start[n + 1]).
struct ByLength {
  std::vector<int32_t> start;
  Unset order;
};

ByLength sort_by_length(Lengths lengths, int64_t tokens) {
  ByLength by;
  // One extra place in front: placing the parts moves next[n] to the end of
  // length n, which is start[n + 1].
  by.start.assign(static_cast<size_t>(tokens) + 3, 0);
  int32_t* const next = by.start.data() + 1;
  for (const int32_t length : lengths) ++next[length + 1];
  for (int64_t n = 1; n <= tokens + 1; ++n) next[n] += next[n - 1];
  by.order = unset(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    by.order[static_cast<size_t>(next[lengths[i]]++)] = static_cast<int32_t>(i);
  }
  by.start.pop_back();
  return by;
}

// Rows by the room that they have left; rows of equal room form a linked list.
class Rooms {
 public:
  Rooms(int64_t tokens, size_t most_rows)
      : head_(static_cast<size_t>(tokens) + 1, -1),
        next_(unset(most_rows)),
        set_(tokens) {}

  // Takes out a row with the least room for `length`; -1 if no row has it.
  int32_t take(int32_t length) {
    const int64_t room = set_.at_least(length);
    if (room < 0) return -1;
    room_ = static_cast<int32_t>(room);
    int32_t& head = head_[static_cast<size_t>(room)];
    const int32_t row = head;
    head = next_[static_cast<size_t>(row)];
    if (head < 0) set_.erase(room);
    return row;
  }
  int32_t room() const { return room_; }  // of the row that was taken last

  void put(int32_t row, int32_t room) {
    if (room == 0) return;
    int32_t& head = head_[static_cast<size_t>(room)];
    if (head < 0) set_.insert(room);
    next_[static_cast<size_t>(row)] = head;
    head = row;
  }

 private:
  std::vector<int32_t> head_;
  Unset next_;
  NumberSet set_;
  int32_t room_ = 0;
};

// Part order[i] lies in row_of[i]. Each row lists its parts last to first.
void gather(std::span<const int32_t> order, std::span<const int32_t> row_of,
            int32_t rows, Fit& fit) {
  std::vector<int32_t>& start = fit.row_start;
  start.assign(static_cast<size_t>(rows) + 2, 0);
  for (const int32_t row : row_of) ++start[static_cast<size_t>(row) + 2];
  for (size_t r = 1; r < start.size(); ++r) start[r] += start[r - 1];
  fit.parts.resize(order.size());
  for (size_t i = order.size(); i-- > 0;) {
    const auto row = static_cast<size_t>(row_of[i]) + 1;
    fit.parts[static_cast<size_t>(start[row]++)] = order[i];
  }
  start.pop_back();
}

// Lengths from `length` down; `taken` parts of `length` have a row already.
struct LengthsLeft {
  int32_t length, taken;
};

// even_fit balances the cost of parts that are at least 1 / kLongShare of a
// row; shorter parts cost little, and go where they fill best.
constexpr int64_t kLongShare = 8;

// Each part of these lengths, longest first, goes into the row where it leaves
// the least room; parts longer than `most` begin a row of their own.
void fit_rest(const ByLength& by, LengthsLeft left, int32_t most, int32_t all,
              Rooms& rooms, int32_t& rows, const Unset& row_of) {
  for (; left.length > 0; --left.length, left.taken = 0) {
    const int32_t length = left.length;
    int32_t i = by.start[static_cast<size_t>(length)] + left.taken;
    const int32_t end = by.start[static_cast<size_t>(length) + 1];
    while (i < end) {
      int32_t row = length > most ? -1 : rooms.take(length);
      int32_t room = rooms.room();
      if (row < 0) {
        row = rows++;
        room = all;
      }
      // The row still has the least room that fits this length, so more parts
      // of this length go there.
      do {
        row_of[static_cast<size_t>(i++)] = row;
        room -= length;
      } while (room >= length && i < end);
      rooms.put(row, room);
    }
  }
}

}  // namespace

void first_fit(Lengths parts, int64_t tokens, Fit& fit) {
  // Fills row by row with the longest part that fits. This equals first fit,
  // which passes over a row only if the row has no room.
  const ByLength by = sort_by_length(parts, tokens);
  std::vector<int32_t> next(by.start.begin() + 1, by.start.end());
  NumberSet lengths(tokens);
  for (int64_t n = 1; n <= tokens; ++n) {
    if (by.start[static_cast<size_t>(n)] < next[static_cast<size_t>(n)]) {
      lengths.insert(n);
    }
  }
  fit.parts.resize(parts.size());
  fit.row_start.assign(1, 0);
  size_t out = 0;
  while (out < parts.size()) {
    int64_t room = tokens;
    int64_t n = -1;
    while (room > 0 && (n = lengths.at_most(room)) > 0) {
      // Parts of one length are taken last to first, as in best_fit.
      int32_t& left = next[static_cast<size_t>(n)];
      fit.parts[out++] = by.order[static_cast<size_t>(--left)];
      if (left == by.start[static_cast<size_t>(n)]) lengths.erase(n);
      room -= n;
    }
    fit.row_start.push_back(static_cast<int32_t>(out));
  }
}

void best_fit(Lengths parts, int64_t tokens, Fit& fit) {
  const ByLength by = sort_by_length(parts, tokens);
  const Unset row_of = unset(parts.size());
  Rooms rooms(tokens, parts.size());
  const auto all = static_cast<int32_t>(tokens);
  // All rows begun before a part longer than half a row hold one at least as
  // long, so it cannot fit into them.
  int32_t rows = 0;
  fit_rest(by, {all, 0}, all / 2, all, rooms, rows, row_of);
  gather({by.order.get(), parts.size()}, {row_of.get(), parts.size()}, rows,
         fit);
}

void even_fit(Lengths parts, int64_t tokens, Fit& fit) {
  const ByLength by = sort_by_length(parts, tokens);
  const Unset row_of = unset(parts.size());
  const auto all = static_cast<int32_t>(tokens);
  // The fewest rows possible. The top of `least` has the least sum of squares.
  int64_t sum = 0;
  for (const int32_t length : parts) sum += length;
  auto rows = static_cast<int32_t>(ceil_div(sum, tokens));
  std::vector<int32_t> room(static_cast<size_t>(rows), all);
  using Row = std::pair<int64_t, int32_t>;
  std::vector<Row> first(static_cast<size_t>(rows));
  for (int32_t r = 0; r < rows; ++r) first[static_cast<size_t>(r)].second = r;
  std::priority_queue<Row, std::vector<Row>, std::greater<>> least(
      std::greater<>(), std::move(first));
  LengthsLeft left{all, 0};
  const auto shortest = static_cast<int32_t>(ceil_div(tokens, kLongShare));
  for (; left.length >= shortest && !least.empty();
       --left.length, left.taken = 0) {
    const auto n = static_cast<size_t>(left.length);
    for (int32_t i = by.start[n]; i < by.start[n + 1]; ++i) {
      // A row without room for this part gets no more long parts.
      while (!least.empty() &&
             room[static_cast<size_t>(least.top().second)] < left.length) {
        least.pop();
      }
      if (least.empty()) break;
      const auto [squares, row] = least.top();
      least.pop();
      least.emplace(squares + int64_t{left.length} * left.length, row);
      room[static_cast<size_t>(row)] -= left.length;
      row_of[static_cast<size_t>(i)] = row;
      ++left.taken;
    }
    if (least.empty()) break;
  }
  Rooms rooms(tokens, parts.size() + room.size());
  for (int32_t r = rows; r-- > 0;) rooms.put(r, room[static_cast<size_t>(r)]);
  fit_rest(by, left, all, all, rooms, rows, row_of);
  gather({by.order.get(), parts.size()}, {row_of.get(), parts.size()}, rows,
         fit);
}

}  // namespace tessera::data
