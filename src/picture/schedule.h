// picture/schedule.h: slot use over a TPU kernel's loop as SVG.
#pragma once

#include <span>
#include <string>

#include "schedule/predict.h"

namespace tessera::picture {

// A kernel and what was predicted of each of its regions.
struct Kernel {
  const schedule::KernelProfile& profile;
  const schedule::Prediction& prediction;
};

// Of the loop that holds the most bundles of the kernel that has the most, or
// of the whole kernel where it has no loop.
Result<std::string> draw_schedule(std::span<const Kernel> kernels);

}  // namespace tessera::picture
