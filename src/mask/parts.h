// mask/parts.h: counts the legal pairs of one tile row, shape by shape, and
// gives each tile its class.
#pragma once

#include <cstdint>
#include <vector>

#include "mask/runs.h"
#include "tessera/plan.h"

namespace tessera::mask {

// Adjacent active columns [begin, end) of one class, each with `pairs` pairs.
struct Span {
  int32_t begin = 0;
  int32_t end = 0;
  TileClass tile_class = TileClass::empty;
  int64_t pairs = 0;
};

// Division by a block size; a shift for a power of two, the usual case.
class Divider {
 public:
  explicit Divider(int64_t n = 1) : n_(n) {
    if ((n & (n - 1)) == 0) {
      shift_ = __builtin_ctzll(static_cast<unsigned long long>(n));
    }
  }
  int64_t floor(int64_t a) const {  // a >= 0
    return shift_ >= 0 ? a >> shift_ : a / n_;
  }
  int64_t ceil(int64_t a) const { return floor(a + n_ - 1); }

 private:
  int64_t n_;
  int shift_ = -1;
};

// Shapes may overlap only if one of them subtracts (set_times).
class Parts {
 public:
  Parts(int64_t kv_len, int64_t block);

  int64_t columns() const { return columns_; }
  void clear();
  // Shapes added from now on count `times` times; -1 subtracts them.
  void set_times(int64_t times) { times_ = times; }

  // `queries` queries that see the whole strip of keys.
  void add_rectangle(Interval strip, int64_t queries);
  // Queries at `positions`. Each sees the keys k of the strip with from <= k -
  // position < to.
  void add_trapezoid(Interval positions, Interval strip, int64_t from,
                     int64_t to);
  // `value` pairs in each of the columns [begin, end).
  void add(int64_t begin, int64_t end, int64_t value);

  // The active tiles, ascending. A full tile holds all pairs of `queries`
  // queries and the tile's keys below kv_len.
  void finish(int64_t queries, std::vector<Span>& spans);

 private:
  struct Part {
    int32_t begin;
    int32_t end;
    int64_t value;
  };
  struct Change {
    int32_t column;
    int64_t delta;
  };

  int64_t kv_len_;
  int64_t block_;
  int64_t columns_ = 0;
  Divider column_;
  int64_t times_ = 1;
  bool ascending_ = true;  // the parts ascend and are disjoint
  std::vector<Part> parts_;
  std::vector<Change> changes_;
  std::vector<int64_t> sums_;  // per column
};

}  // namespace tessera::mask
