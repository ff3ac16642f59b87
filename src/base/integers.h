// base/integers.h: division that rounds one way for every sign.
#pragma once

#include <cstdint>

namespace tessera {

// n > 0 for both; no intermediate value overflows.
constexpr int64_t ceil_div(int64_t a, int64_t n) { return a / n + (a % n > 0); }
constexpr int64_t floor_div(int64_t a, int64_t n) {
  return a / n - (a % n < 0);
}

// The least multiple of n that is not below a; a >= 0.
constexpr int64_t round_up(int64_t a, int64_t n) { return ceil_div(a, n) * n; }

}  // namespace tessera
