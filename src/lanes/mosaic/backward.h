// lanes/mosaic/backward.h: the TPU kernel of the gradients, as text.
#pragma once

#include <string>
#include <vector>

#include "lanes/mosaic/shape.h"
#include "lanes/mosaic/writer.h"

namespace tessera::mosaic {

// The number of results, which are the last of the kernel's arrays.
int backward_outputs(const KernelShape& shape);
std::vector<Argument> backward_arguments(const KernelShape& shape);
std::string backward_kernel(const KernelShape& shape);

}  // namespace tessera::mosaic
