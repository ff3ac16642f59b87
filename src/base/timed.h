// base/timed.h: how long a piece of work takes.
#pragma once

#include <chrono>

namespace tessera {

inline double ms_since(std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double, std::milli> took =
      std::chrono::steady_clock::now() - start;
  return took.count();
}

// Returns what `work` returns; adds its milliseconds to `ms`, also if it fails.
template <class Work>
auto timed(double& ms, const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  auto result = work();
  ms += ms_since(start);
  return result;
}

}  // namespace tessera
