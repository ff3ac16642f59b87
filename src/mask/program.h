// mask/program.h: a mask compiled for classification.
//
// For one query, every atom depends either on the key alone (documents, chunk,
// prefix, ...: a few intervals of keys) or on the distance d = key - position
// alone (causal, window: a few thresholds). The thresholds cut the distances
// into at most 64 bands. A strip is a range of keys in which no interval begins
// or ends. Within a strip the whole expression is one set of bands, a 64-bit
// word, and its operators are bitwise.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/mask.h"

namespace tessera::mask {

// Larger than any distance between a key and a position.
inline constexpr int64_t kFar = int64_t{1} << 40;

// An atom that depends on the key alone for a fixed query. A tree compiles to
// causal & (n 0 | n 1): n 0 holds for keys on the path to all queries of a
// group, n 1 for keys on the path to some pieces of the group.
struct KeyAtom {
  Atom atom = Atom::full;
  int64_t n = 0;

  bool operator==(const KeyAtom&) const = default;
};

struct Program {
  struct Op {
    enum Kind : uint8_t { bands, key, op_not, op_and, op_or } kind;
    uint64_t value;  // the bands, the key atom's number or the operand count
  };

  Names names;
  std::vector<int64_t> thresholds;  // band j: thresholds[j - 1] <= d < [j]
  std::vector<KeyAtom> keys;
  std::vector<Op> ops;          // postfix
  std::vector<uint64_t> table;  // bands of every state; empty if too large
  int64_t reach_begin = -kFar;  // every legal distance is at least this
  int64_t reach_end = kFar;     // and less than this

  uint64_t all_bands() const {
    const size_t n = thresholds.size() + 1;
    return n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
  }
  int64_t band_begin(int j) const { return j == 0 ? -kFar : thresholds[j - 1]; }
  int64_t band_end(int j) const {
    return j == static_cast<int>(thresholds.size()) ? kFar : thresholds[j];
  }

  // The legal bands if exactly the key atoms in `state` hold.
  uint64_t legal_bands(uint64_t state) const {
    return table.empty() ? evaluate(state) : table[state];
  }
  uint64_t evaluate(uint64_t state) const;
};

// Refuses masks with more than 63 thresholds or 64 key atoms.
Result<Program> compile(const Mask& mask);

}  // namespace tessera::mask
