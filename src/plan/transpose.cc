// plan/transpose.cc: a counting sort of each list by column.
#include "plan/transpose.h"

namespace tessera {

void plan::transpose(const Worklist& w, Worklist& out) {
  out.lists = w.lists;
  out.rows = w.columns;
  out.columns = w.rows;
  out.entries.resize(w.entries.size());
  const auto columns = static_cast<size_t>(w.columns);
  const size_t starts = static_cast<size_t>(w.lists) * columns;
  // While filling, start[c + 1] is where the next entry of column c goes. At
  // the end it is where column c ends, as a row start list requires.
  out.row_start.assign(starts + 1, 0);
  for (int64_t l = 0; l < w.lists; ++l) {
    uint32_t* start = out.row_start.data() + static_cast<size_t>(l) * columns;
    const size_t first = static_cast<size_t>(l * w.rows);
    const Entry* const begin = w.entries.data() + w.row_start[first];
    const Entry* const end =
        w.entries.data() + w.row_start[first + static_cast<size_t>(w.rows)];
    // start[0] is the previous list's end, so counts shift by two places: a
    // column's count goes where its successor's fill position will be.
    uint32_t* const next = start + 1;
    for (const Entry* e = begin; e != end; ++e) ++next[e->word >> 2];
    uint32_t at = start[0];
    for (size_t c = 0; c < columns; ++c) {
      const uint32_t count = next[c];
      next[c] = at;
      at += count;
    }
    for (int64_t r = 0; r < w.rows; ++r) {
      for (const Entry& e : w.row(l, r)) {
        out.entries[next[e.word >> 2]++] = {static_cast<uint32_t>(r) << 2 |
                                            (e.word & 3)};
      }
    }
  }
}

Worklist transpose(const Worklist& w) {
  Worklist out;
  plan::transpose(w, out);
  return out;
}

}  // namespace tessera
