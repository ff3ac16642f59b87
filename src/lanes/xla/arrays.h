// lanes/xla/arrays.h: one batch, as the integers that a program reads.
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

// By the names of arguments_of(), and as long as those say.
using Integers = std::map<std::string, std::vector<int32_t>>;

// The shape must be that of the bound request, which must fit it.
Result<Integers> make_integers(const Shape& s, const mask::Bound& bound,
                               const Plan& plan);

// Writes the worklist's among them. Batch rows that are not there have no
// steps.
Result<void> write_steps(const Steps& steps, Integers& to);

}  // namespace tessera::xla
