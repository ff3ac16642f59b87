// base/timed.h: how long a piece of work takes.
#pragma once

#include <chrono>

namespace tessera {

// What `work` gives; its milliseconds are added to `ms`, also where it fails.
template <class Work>
auto timed(double& ms, const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  auto result = work();
  const std::chrono::duration<double, std::milli> took =
      std::chrono::steady_clock::now() - start;
  ms += took.count();
  return result;
}

}  // namespace tessera
