// fit/heap.h: memory as the TPU's compiler hands it out: in the order of its
// schedule, to each array the smallest gap that holds it, else behind all that
// is taken. What came and went leaves gaps, so that it may reach further than
// what was ever there at once.
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
  using Place = int64_t;  // where it begins
  // Whether fullest() is kept, which takes a copy wherever it reaches further.
  explicit Heap(bool keeps_fullest = true) : keeps_fullest_(keeps_fullest) {}

  // `bytes` is above 0.
  Place take(std::string name, int64_t bytes);
  // Where it begins, if nothing is there: what is too small to count otherwise.
  void take_at(Place place, std::string name, int64_t bytes);
  // Behind all, where that a gap holds it cannot be counted on.
  Place take_behind(std::string name, int64_t bytes);
  void give_back(Place place);
  // Where what was given back began, each once.
  const std::vector<Place>& given_back() const { return given_back_; }

  int64_t reach() const { return reach_; }  // the furthest so far
  // What was there when it came to reach so far: arrays of one name together,
  // and the `holes` between.
  std::vector<MemoryPart> fullest() const;

 private:
  struct Array {
    int64_t bytes = 0;
    std::string name;
  };
  bool keeps_fullest_;
  std::map<Place, Array> taken_, fullest_;
  std::set<std::pair<int64_t, Place>> gaps_;  // by size, below what is last
  std::vector<Place> given_back_;
  int64_t reach_ = 0;

  Place put(Place place, std::string name, int64_t bytes);
  Place end_before(std::map<Place, Array>::const_iterator at) const;
  void add_gap(Place begin, Place end);
  void drop_gap(Place begin, Place end);
};

}  // namespace tessera::fit
