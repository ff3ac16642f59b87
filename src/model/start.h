// model/start.h: what parameters are before the first step.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/train.h"

namespace tessera::model {

// The same numbers for a seed and a place in the model, whatever is around it.
std::vector<float> start_values(const ModelParameter& parameter, uint64_t seed);

}  // namespace tessera::model
