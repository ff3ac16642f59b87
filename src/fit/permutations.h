// fit/permutations.h: the buffers of permutations on a device's heap. A limited
// number of permutations is under way at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fit/heap.h"

namespace tessera::fit {

// The buffer that leaves is kept until the permutation ends; the one that
// arrives is taken when it starts.
struct Permutation {
  std::string array;
  int64_t bytes = 0;
  Heap::Place leaves = 0;
};

class Permutations {
 public:
  // The name of a memory part is `name` followed by the array's name.
  Permutations(Heap& heap, std::string name)
      : heap_(heap), name_(std::move(name)) {}

  // xla_max_concurrent_async_collective_permutes of libtpu's dumps.
  static constexpr size_t kMaxUnderWay = 5;
  bool is_full() const { return under_way_.size() == kMaxUnderWay; }
  bool is_idle() const { return under_way_.empty(); }
  const std::string& oldest() const { return under_way_.front().array; }

  // Starts it now, or once others have ended.
  void start(Permutation p);
  void end_oldest();
  void end_all(const std::string& array);
  // Gives back the buffers that arrived of an array.
  void give_back(const std::string& array);

 private:
  void end(size_t at);  // index in under_way_
  void start_waiting();

  Heap& heap_;
  std::string name_;
  std::deque<Permutation> waiting_, under_way_;
  std::map<std::string, std::vector<Heap::Place>> arrived_;
};

}  // namespace tessera::fit
