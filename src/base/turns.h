// base/turns.h: runs candidates in turns, so that a machine that slows down or
// speeds up meanwhile favours none of them. `tessera gate` and `tessera-bench`
// time with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "base/timed.h"
#include "tessera/result.h"

namespace tessera {

// How many rounds run.
struct Rounds {
  int64_t warm_up = 0;  // first rounds, whose results are dropped
  int64_t least = 1;
  int64_t most = std::numeric_limits<int64_t>::max();
  double seconds = 0;  // past `least`, rounds start within this time
  // After this time no round starts, whatever `least` is.
  double limit = std::numeric_limits<double>::infinity();

  // Whether another round runs after `done` counted rounds in `spent` seconds.
  bool go_on(int64_t done, double spent) const {
    if (done >= most || (done > 0 && spent > limit)) return false;
    return done < least || spent <= seconds;
  }
};

inline Rounds just(int64_t rounds, int64_t warm_up = 0) {
  return {.warm_up = warm_up, .least = rounds, .most = rounds};
}

// One candidate: a run that returns its measurement.
template <class T>
using Turn = std::function<Result<T>()>;

// Runs all candidates in order, round by round; an error ends it. Returns the
// results of each candidate in the counted rounds.
template <class T>
Result<std::vector<std::vector<T>>> take_turns(
    const Rounds& rounds, const std::vector<Turn<T>>& turns) {
  std::vector<std::vector<T>> out(turns.size());
  const auto round = [&](bool counts) -> Result<void> {
    for (size_t i = 0; i < turns.size(); ++i) {
      auto took = turns[i]();
      if (!took) return took.error();
      if (counts) out[i].push_back(std::move(*took));
    }
    return {};
  };
  for (int64_t i = 0; i < rounds.warm_up; ++i) {
    if (auto e = round(/*counts=*/false); !e) return e.error();
  }
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; rounds.go_on(i, ms_since(start) / 1e3); ++i) {
    if (auto e = round(/*counts=*/true); !e) return e.error();
  }
  return out;
}

// The same for one candidate alone.
template <class T>
Result<std::vector<T>> repeat(const Rounds& rounds, const Turn<T>& turn) {
  auto all = take_turns<T>(rounds, {turn});
  if (!all) return all.error();
  return std::move(all->front());
}

}  // namespace tessera
