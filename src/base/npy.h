// base/npy.h: NumPy's .npy files, as far as token ids need them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera {

struct NpyInts {
  std::vector<int64_t> shape;
  std::vector<int32_t> values;  // C order

  bool operator==(const NpyInts&) const = default;
};

// Format versions 1 to 3, C order, dtype '<i4' or '<i8'; 64-bit values must
// fit int32. Any other dtype is an error that names it.
Result<NpyInts> parse_npy(std::string_view bytes);

// Version 1, dtype '<i4'. `shape` must hold as many elements as `values`.
Result<std::string> write_npy(std::span<const int64_t> shape,
                              std::span<const int32_t> values);

}  // namespace tessera
