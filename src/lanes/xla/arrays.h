// lanes/xla/arrays.h: the integer arrays of one batch that a program reads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lanes/xla/shape.h"
#include "mask/bind.h"
#include "tessera/layouts.h"
#include "tessera/plan.h"

namespace tessera::xla {

// Arrays by the names of arguments_of(), with the sizes that it gives.
using Integers = std::map<std::string, std::vector<int32_t>>;

// `s` must be the shape of the bound request, and large enough for it.
Result<Integers> make_integers(const Shape& s, const mask::Bound& bound,
                               const Plan& plan);

// Writes the worklist's arrays into `to`. Batch rows beyond the batch have no
// steps.
Result<void> write_steps(const Steps& steps, Integers& to);

}  // namespace tessera::xla
