// fit/permutations.cc: see permutations.h.
#include "fit/permutations.h"

#include <algorithm>
#include <cstddef>

namespace tessera::fit {

void Permutations::start(Permutation p) {
  waiting_.push_back(std::move(p));
  start_waiting();
}

void Permutations::end_oldest() { end(0); }

void Permutations::end_all(const std::string& array) {
  const auto is_its = [&](const Permutation& p) { return p.array == array; };
  while (true) {
    const auto its = std::ranges::find_if(under_way_, is_its);
    if (its != under_way_.end()) {
      end(static_cast<size_t>(its - under_way_.begin()));
    } else if (std::ranges::any_of(waiting_, is_its)) {
      end_oldest();
    } else {
      return;
    }
  }
}

void Permutations::give_back(const std::string& array) {
  for (const Heap::Place place : arrived_[array]) heap_.give_back(place);
  arrived_.erase(array);
}

void Permutations::end(size_t at) {
  heap_.give_back(under_way_[at].leaves);
  under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(at));
  start_waiting();
}

void Permutations::start_waiting() {
  while (!is_full() && !waiting_.empty()) {
    const Permutation& p = waiting_.front();
    arrived_[p.array].push_back(heap_.take(name_ + p.array, p.bytes));
    under_way_.push_back(p);
    waiting_.pop_front();
  }
}

}  // namespace tessera::fit
