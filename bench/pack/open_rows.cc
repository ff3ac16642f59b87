// bench/pack/open_rows.cc: best fit among a few open rows.
#include "bench/pack/open_rows.h"

#include <numeric>

namespace tessera::bench {

int64_t pack_open_rows(std::span<const int32_t> lengths, int32_t tokens,
                       int32_t open, std::vector<int64_t>& row_of) {
  std::vector<int32_t> rooms(static_cast<size_t>(open), tokens);
  std::vector<int64_t> numbers(rooms.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  int32_t* const room = rooms.data();
  int64_t* const number = numbers.data();
  int64_t rows = open;
  for (size_t d = 0; d < lengths.size(); ++d) {
    int32_t length = lengths[d];
    if (length > tokens) {
      const int32_t whole = (length - 1) / tokens;
      rows += whole;
      length -= whole * tokens;
    }
    int32_t best = -1, fullest = 0;
    int32_t least = tokens + 1;
    for (int32_t r = 0; r < open; ++r) {
      const int32_t left = room[r] - length;
      if (left >= 0 && left < least) {
        least = left;
        best = r;
      }
      if (room[r] < room[fullest]) fullest = r;
    }
    if (best < 0) {
      best = fullest;
      room[best] = tokens;
      number[best] = rows++;
    }
    room[best] -= length;
    row_of[d] = number[best];
  }
  return rows;
}

}  // namespace tessera::bench
