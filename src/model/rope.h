// model/rope.h: the angles by which RoPE turns each pair of a head's numbers.
#pragma once

#include <vector>

#include "tessera/train.h"

namespace tessera::model {

// head_dim / 2 angles in radians; position p turns by p times each of them.
std::vector<double> rope_steps(const ModelConfig& model);

}  // namespace tessera::model
