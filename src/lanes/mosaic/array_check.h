// lanes/mosaic/array_check.h: the arrays of integers that a kernel takes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/mosaic.h"

namespace tessera::mosaic {

struct ArrayShape {
  std::string_view name;
  std::vector<int64_t> shape;
};
// Name and shape of each integer array, in the program's order.
std::vector<ArrayShape> array_shapes(const MosaicKernel& kernel);

}  // namespace tessera::mosaic
