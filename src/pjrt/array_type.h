// pjrt/array_type.h: the element type and dimensions of an array.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/attention.h"
#include "tessera/result.h"

namespace tessera::pjrt {

// The array is in row-major order, without gaps.
struct ArrayType {
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> dims;  // none: a scalar

  bool operator==(const ArrayType&) const = default;
};

Result<int64_t> byte_size(const ArrayType& type);  // an overflow is an error
std::string describe(const ArrayType& type);       // "F32 [8, 128]"

}  // namespace tessera::pjrt
