// lanes/mosaic/forward.h: the TPU kernel of forward attention, as text.
#pragma once

#include <string>
#include <vector>

#include "lanes/mosaic/shape.h"
#include "lanes/mosaic/writer.h"

namespace tessera::mosaic {

inline constexpr int kForwardOutputs = 2;  // the last of its arrays

std::vector<Argument> forward_arguments(const KernelShape& shape);
std::string forward_kernel(const KernelShape& shape);

}  // namespace tessera::mosaic
