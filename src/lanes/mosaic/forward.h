// lanes/mosaic/forward.h: the TPU kernel of forward attention, as text.
#pragma once

#include <string>
#include <vector>

#include "lanes/mosaic/shape.h"
#include "lanes/mosaic/writer.h"

namespace tessera::mosaic {

// The number of results, which are the last of the kernel's arrays.
inline int forward_outputs(const KernelShape& s) { return s.in_parts ? 3 : 2; }

// Queries of a strip, the part of a tile whose scores, softmax and products are
// done together; block_q where tiles are not cut into strips.
int64_t strip_queries(const KernelShape& s);

std::vector<Argument> forward_arguments(const KernelShape& shape);
std::string forward_kernel(const KernelShape& shape);

}  // namespace tessera::mosaic
