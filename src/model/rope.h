// model/rope.h: how far each pair of a head's numbers turns a token.
#pragma once

#include <vector>

#include "tessera/train.h"

namespace tessera::model {

// head_dim / 2 of them, in radians.
std::vector<double> rope_steps(const ModelConfig& model);

}  // namespace tessera::model
