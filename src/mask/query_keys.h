// mask/query_keys.h: the legal keys of each query, as intervals.
//
// A tile of 1 x 1 is a pair, so the classifier set to that size tells the keys
// of one query, straight from the facts, in some 40 ns. Where nothing but the
// order of time tells neighbours apart, as the queries of a document or those
// that pick alike, the last one's keys, cut where each stands, are those of
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
  // `pairs` has tiles of 1 x 1, and must outlive this.
  explicit QueryKeys(const Sweep& pairs);

  void begin_list(int64_t list);
  // visit(first, last, keys) for queries [begin, end), those that share their
  // keys at once: intervals that rise and do not touch, of which query q has
  // what lies below past(q). Within a list queries must ascend from call to
  // call. Stops where visit says no.
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
  bool shares_ = false;  // distances say at most that no key is of the future
  bool cut_ = false;     // they do say that
  int64_t offset_ = 0;
  std::vector<Interval> keys_;
};

}  // namespace tessera::mask
