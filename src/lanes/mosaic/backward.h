// lanes/mosaic/backward.h: the TPU kernel of the gradients, as text.
#pragma once

#include <string>
#include <vector>

#include "lanes/mosaic/shape.h"
#include "lanes/mosaic/writer.h"

namespace tessera::mosaic {

// The last of its arrays.
inline int backward_outputs(const KernelShape& s) {
  const auto parts = std::max<int>(1, static_cast<int>(s.key_parts.size()));
  return 1 + 2 * parts + (s.has_sinks ? 1 : 0) + (s.in_parts ? 1 : 0) +
         (s.in_chunks() ? 2 : 0);
}

std::vector<Argument> backward_arguments(const KernelShape& shape);
std::string backward_kernel(const KernelShape& shape);

}  // namespace tessera::mosaic
