// mask/runs.h: runs of equal ids, and which runs share an id.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::mask {

// Half-open [begin, end).
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
};

struct IdRuns {
  std::vector<int32_t> start;  // run r covers [start[r], start[r + 1])
  std::vector<int32_t> id;     // one less entry than `start`
  bool any_negative = false;
  // No id occurs twice; then `order`, `place` and `before` stay empty.
  bool distinct = true;
  std::vector<int32_t> order;     // runs by (id, start)
  std::vector<int32_t> place;     // of each run, in `order`
  std::vector<int32_t> before;    // per place: tokens of its id in earlier runs
  std::vector<int32_t> negative;  // runs with a negative id, ascending

  int64_t count() const { return static_cast<int64_t>(id.size()); }
};

// Finds the runs of ids[0, n) and reuses the memory of `runs`.
void find_runs(const int32_t* ids, int64_t n, IdRuns& runs);

// Finds which runs share an id: fills `order`, `place` and `before`.
void link_runs(IdRuns& runs);

// The places in `order` (runs, if all ids are distinct) of one id: [first,
// last). Empty if no run has the id.
Interval places_of_id(const IdRuns& runs, int32_t id);
Interval places_of_run(const IdRuns& runs, int64_t run);

// The number of keys of each id, and of any negative id, in each tile column.
// With many short runs, this settles a whole column at once.
struct ColumnCounts {
  struct Count {
    int32_t column;
    int32_t keys;
  };
  std::vector<int32_t> first;     // per place: where its id's counts begin
  std::vector<Count> counts;      // ascending by column for each id
  std::vector<int32_t> negative;  // per column

  std::span<const Count> of(Interval places) const {
    return {counts.data() + first[places.begin],
            counts.data() + first[places.end]};
  }
};

// `runs` must be linked and not distinct; columns have `block` keys.
void count_columns(const IdRuns& runs, int64_t block, ColumnCounts& out);

}  // namespace tessera::mask
