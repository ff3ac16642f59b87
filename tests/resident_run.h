// tests/resident_run.h: compares passes over arrays that stay with a lane to
// the same lane's passes over host arrays.
#pragma once

#include <optional>
#include <string>

#include "lanes/lane.h"
#include "tests/attention_case.h"

namespace tessera::testing {

// `arrays` has the results of the lane's host passes. The resident passes,
// forward and backward, must write the same bits again.
std::optional<std::string> resident_fault(lanes::LaneWork& work,
                                          const Batch& batch,
                                          AttentionArrays& arrays);

}  // namespace tessera::testing
