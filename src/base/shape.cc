// base/shape.cc: the size of an array that a file claims to hold.
#include "base/shape.h"

namespace tessera {

std::optional<int64_t> element_count(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t n : shape) {
    if (n < 0 || __builtin_mul_overflow(count, n, &count)) return {};
  }
  return count;
}

}  // namespace tessera
