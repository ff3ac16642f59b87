// model/padding.h: pads arrays to the sizes of a kernel, and cuts them back.
#pragma once

#include "model/layer.h"

namespace tessera::model {

// Pads each dimension at its end with `fill`.
Value grown(Writer& w, Value a, const Dims& dims, double fill = 0);
// Keeps the first elements of each dimension.
Value shrunk(Writer& w, Value a, const Dims& dims);

}  // namespace tessera::model
