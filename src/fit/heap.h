// fit/heap.h: places arrays as the TPU's compiler does: in the order of its
// schedule, each in the smallest gap that holds it, else behind all others.
// Arrays that were given back leave gaps, so the heap may reach further than
// the most bytes that are taken at one time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/fit.h"

namespace tessera::fit {

class Heap {
 public:
  using Place = int64_t;  // offset at which an array begins
  // `keeps_fullest`: whether fullest() may be called. It costs a copy each time
  // the heap reaches further.
  explicit Heap(bool keeps_fullest = true) : keeps_fullest_(keeps_fullest) {}

  // `bytes` is above 0.
  Place take(std::string name, int64_t bytes);
  // Takes the place if it is free, else does nothing. For arrays that are too
  // small to count, except that they split a gap.
  void take_at(Place place, std::string name, int64_t bytes);
  // Takes the place behind all arrays, as if no gap could hold this one.
  Place take_behind(std::string name, int64_t bytes);
  void give_back(Place place);
  // The places that were given back, each once.
  const std::vector<Place>& given_back() const { return given_back_; }

  int64_t reach() const { return reach_; }  // the furthest end so far
  // The arrays that were taken when the heap reached that far, those of one
  // name added up, and the `holes` between them.
  std::vector<MemoryPart> fullest() const;

 private:
  struct Array {
    int64_t bytes = 0;
    std::string name;
  };
  bool keeps_fullest_;
  std::map<Place, Array> taken_, fullest_;
  std::set<std::pair<int64_t, Place>> gaps_;  // by size, before the last array
  std::vector<Place> given_back_;
  int64_t reach_ = 0;

  Place put(Place place, std::string name, int64_t bytes);
  Place end_before(std::map<Place, Array>::const_iterator at) const;
  void add_gap(Place begin, Place end);
  void drop_gap(Place begin, Place end);
};

}  // namespace tessera::fit
