// model/start.h: the values of parameters before the first step.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/train.h"

namespace tessera::model {

// Depends on the seed and the parameter alone, not on the rest of the model.
std::vector<float> start_values(const ModelParameter& parameter, uint64_t seed);

}  // namespace tessera::model
