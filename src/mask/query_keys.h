// mask/query_keys.h: the legal keys of each query, as intervals.
//
// A tile of 1 x 1 is one pair, so a classifier with that tile size gives the
// keys of one query directly from the facts, in some 40 ns. If adjacent queries
// differ at most by causality (queries of one document, or with equal picks),
// the keys of the last query, cut at each query's position, are the keys of
// all.
#pragma once

#include <cstdint>
#include <vector>

#include "mask/classify.h"
#include "mask/runs.h"
#include "mask/sweep.h"

namespace tessera::mask {

class QueryKeys {
 public:
  // `pairs` has tiles of 1 x 1, and must outlive this object.
  explicit QueryKeys(const Sweep& pairs);

  void begin_list(int64_t list);
  // Calls visit(first, last, keys) for queries [begin, end), once per group of
  // queries that share keys. `keys` are ascending intervals that do not touch;
  // query q has the part below past(q). Within a list, queries must ascend from
  // call to call. Stops if visit returns false.
  template <class Visit>
  bool each(int64_t begin, int64_t end, Visit&& visit) {
    for (int64_t q = begin; q < end;) {
      const int64_t alike = shares_ ? pairs_.alike_until(q, end) : q + 1;
      read(alike - 1);
      if (!visit(q, alike, keys_)) return false;
      q = alike;
    }
    return true;
  }
  int64_t past(int64_t q) const { return cut_ ? q + offset_ + 1 : kFar; }

 private:
  void read(int64_t q);

  const Sweep& sweep_;
  Classifier pairs_;
  int64_t list_ = -1;
  bool shares_ = false;  // no distance atom, or only causal
  bool cut_ = false;     // causal: cut the keys at each query
  int64_t offset_ = 0;
  std::vector<Interval> keys_;
};

}  // namespace tessera::mask
