// data/fit.cc: parts of documents into rows with room for them, longest first.
// Rows and lengths are found by bits and counts, in constant time a part: no
// trees, no search.
#include "data/fit.h"

#include <algorithm>

#include "data/number_set.h"

namespace tessera::data {
namespace {

// Parts by length: those of length n are order[start[n], start[n + 1]), as they
// came.
struct ByLength {
  std::vector<int32_t> start, order;
};

ByLength sort_by_length(Parts parts, int64_t tokens) {
  ByLength by;
  by.start.assign(static_cast<size_t>(tokens) + 2, 0);
  for (const DocumentPart& p : parts) {
    ++by.start[static_cast<size_t>(p.length) + 1];
  }
  for (size_t n = 1; n < by.start.size(); ++n) by.start[n] += by.start[n - 1];
  by.order.resize(parts.size());
  std::vector<int32_t> next = by.start;
  for (size_t i = 0; i < parts.size(); ++i) {
    by.order[static_cast<size_t>(
        next[static_cast<size_t>(parts[i].length)]++)] =
        static_cast<int32_t>(i);
  }
  return by;
}

// Rows by the room that they have left; those of one room are a chain.
class Rooms {
 public:
  Rooms(int64_t tokens, size_t most_rows)
      : head_(static_cast<size_t>(tokens) + 1, -1),
        next_(most_rows),
        set_(tokens) {}

  // A row with the least room for `length`; -1 where none has it.
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
  std::vector<int32_t> head_, next_;
  NumberSet set_;
  int32_t room_ = 0;
};

// order[i] lies in row_of[i]; a row has its parts from the last to the first.
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

}  // namespace

void first_fit(Parts parts, int64_t tokens, Fit& fit) {
  // Row by row: the longest part that fits, until none does. That is first
  // fit, as a part passes by a row only where it has no room.
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
      // From the last to the first, as best_fit takes them.
      int32_t& left = next[static_cast<size_t>(n)];
      fit.parts[out++] = by.order[static_cast<size_t>(--left)];
      if (left == by.start[static_cast<size_t>(n)]) lengths.erase(n);
      room -= n;
    }
    fit.row_start.push_back(static_cast<int32_t>(out));
  }
}

void best_fit(Parts parts, int64_t tokens, Fit& fit) {
  const ByLength by = sort_by_length(parts, tokens);
  std::vector<int32_t> row_of(parts.size());
  Rooms rooms(tokens, parts.size());
  int32_t rows = 0;
  for (auto length = static_cast<int32_t>(tokens); length > 0; --length) {
    const auto n = static_cast<size_t>(length);
    for (int32_t i = by.start[n]; i < by.start[n + 1]; ++i) {
      int32_t row = rooms.take(length);
      int32_t room = rooms.room();
      if (row < 0) {
        row = rows++;
        room = static_cast<int32_t>(tokens);
      }
      rooms.put(row, room - length);
      row_of[static_cast<size_t>(i)] = row;
    }
  }
  gather(by.order, row_of, rows, fit);
}

}  // namespace tessera::data
