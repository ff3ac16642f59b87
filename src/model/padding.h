// model/padding.h: arrays brought to the sizes of a kernel, and back.
#pragma once

#include "model/layer.h"

namespace tessera::model {

// `fill` behind, in each dimension.
Value grown(Writer& w, Value a, const Dims& dims, double fill = 0);
// The first of each dimension.
Value shrunk(Writer& w, Value a, const Dims& dims);

}  // namespace tessera::model
