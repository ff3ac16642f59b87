// base/shape.cc: the sizes of arrays.
#include "base/shape.h"

#include <fmt/ranges.h>

namespace tessera {

std::optional<int64_t> element_count(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t n : shape) {
    if (n < 0 || __builtin_mul_overflow(count, n, &count)) return {};
  }
  return count;
}

int64_t elements_of(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  return count;
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace tessera
