// fit/heap.h: memory as the TPU's compiler hands it out: in the order of its
// schedule, to each array the smallest gap that holds it, else behind all that
// is taken. What came and went leaves gaps, so that it may reach further than
// what was ever there at once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/fit.h"

namespace tessera::fit {

class Heap {
 public:
  using Place = int64_t;  // where it begins
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
  std::map<Place, Array> taken_, fullest_;
  std::vector<Place> given_back_;
  int64_t reach_ = 0;

  Place put(Place place, std::string name, int64_t bytes);
};

}  // namespace tessera::fit
