// bench/pack/open_rows.cc: best fit among a few open rows.
#include "bench/pack/open_rows.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace tessera::bench {
namespace {

// Writes each document's row (its last part's); says how many rows there are.
int64_t pack(std::span<const int32_t> lengths, int64_t tokens, int64_t open,
             std::vector<int64_t>& row_of) {
  std::vector<int64_t> room(static_cast<size_t>(open), tokens);
  std::vector<int64_t> number(room.size());
  for (size_t r = 0; r < number.size(); ++r) {
    number[r] = static_cast<int64_t>(r);
  }
  int64_t rows = open;
  for (size_t d = 0; d < lengths.size(); ++d) {
    int64_t length = lengths[d];
    for (; length > tokens; length -= tokens) ++rows;
    size_t best = room.size(), fullest = 0;
    int64_t least = tokens + 1;
    for (size_t r = 0; r < room.size(); ++r) {
      const int64_t left = room[r] - length;
      if (left >= 0 && left < least) {
        least = left;
        best = r;
      }
      if (room[r] < room[fullest]) fullest = r;
    }
    if (best == room.size()) {
      best = fullest;
      room[best] = tokens;
      number[best] = rows++;
    }
    room[best] -= length;
    row_of[d] = number[best];
  }
  return rows;
}

}  // namespace

OpenRows pack_open_rows(std::span<const int32_t> lengths, int64_t tokens,
                        int64_t open, int64_t rounds) {
  std::vector<int64_t> row_of(lengths.size());
  OpenRows out;
  for (int64_t round = 0; round < rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    out.rows = pack(lengths, tokens, open, row_of);
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - begin;
    out.documents_per_second =
        std::max(out.documents_per_second,
                 static_cast<double>(lengths.size()) / took.count());
  }
  return out;
}

}  // namespace tessera::bench
