// base/turns.h: work that takes turns, so that a machine that slows down or
// speeds up meanwhile favours nobody. `tessera gate` and `tessera-bench` time
// by it.
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

// How often each has its turn.
struct Rounds {
  int64_t warm_up = 0;  // rounds before, whose results are dropped
  int64_t least = 1;
  int64_t most = std::numeric_limits<int64_t>::max();
  double seconds = 0;  // beyond `least`, another round begins within these
  // Behind these none does, whatever `least` is.
  double limit = std::numeric_limits<double>::infinity();

  // `done` of those that count took `spent` seconds: is there another?
  bool go_on(int64_t done, double spent) const {
    if (done >= most || (done > 0 && spent > limit)) return false;
    return done < least || spent <= seconds;
  }
};

inline Rounds just(int64_t rounds, int64_t warm_up = 0) {
  return {.warm_up = warm_up, .least = rounds, .most = rounds};
}

// One of those that take turns: a run, which gives what it took.
template <class T>
using Turn = std::function<Result<T>()>;

// All in their order, round by round; an error ends it. Of each what it gave in
// the rounds that count.
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

// One alone, again and again.
template <class T>
Result<std::vector<T>> repeat(const Rounds& rounds, const Turn<T>& turn) {
  auto all = take_turns<T>(rounds, {turn});
  if (!all) return all.error();
  return std::move(all->front());
}

}  // namespace tessera
