// fit/permutations.h: the buffers of permutations on a device's heap, of which
// so many are under way at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fit/heap.h"

namespace tessera::fit {

// What leaves lies there until it ends; what arrives, from its start.
struct Permutation {
  std::string array;
  int64_t bytes = 0;
  Heap::Place leaves = 0;
};

class Permutations {
 public:
  // `name` is what parts of memory are called, before the array's.
  Permutations(Heap& heap, std::string name)
      : heap_(heap), name_(std::move(name)) {}

  // xla_max_concurrent_async_collective_permutes of libtpu's dumps.
  static constexpr size_t kMaxUnderWay = 5;
  bool is_full() const { return under_way_.size() == kMaxUnderWay; }
  bool is_idle() const { return under_way_.empty(); }
  const std::string& oldest() const { return under_way_.front().array; }

  // Now, or where others have ended.
  void start(Permutation p);
  void end_oldest();
  void end_all(const std::string& array);
  // What arrived of an array is used up.
  void give_back(const std::string& array);

 private:
  void end(size_t at);  // of those under way
  void start_waiting();

  Heap& heap_;
  std::string name_;
  std::deque<Permutation> waiting_, under_way_;
  std::map<std::string, std::vector<Heap::Place>> arrived_;
};

}  // namespace tessera::fit
