// pjrt/array_type.cc: sizes and names of array types.
#include "pjrt/array_type.h"

#include <fmt/ranges.h>

#include "base/fail.h"
#include "base/shape.h"

namespace tessera::pjrt {

Result<int64_t> byte_size(const ArrayType& type) {
  const auto count = element_count(type.dims);
  int64_t bytes = 0;
  if (!count ||
      __builtin_mul_overflow(*count, byte_width(type.dtype), &bytes)) {
    return invalid("pjrt", "an array's bytes must be in 0..2^63-1, found {}",
                   describe(type));
  }
  return bytes;
}

std::string describe(const ArrayType& type) {
  return fmt::format("{} [{}]", to_string(type.dtype),
                     fmt::join(type.dims, ", "));
}

}  // namespace tessera::pjrt
