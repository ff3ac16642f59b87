// tests/resident_run.h: passes over arrays that stay with a lane, held against
// the same lane's passes over arrays of the host.
#pragma once

#include <optional>
#include <string>

#include "lanes/lane.h"
#include "tests/attention_case.h"

namespace tessera::testing {

// The arrays hold what the lane's host passes wrote, and must hold the very
// bits again. A backward pass too.
std::optional<std::string> resident_fault(lanes::LaneWork& work,
                                          const Batch& batch,
                                          AttentionArrays& arrays);

}  // namespace tessera::testing
