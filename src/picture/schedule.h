// picture/schedule.h: slot use over a TPU kernel's loop as SVG.
#pragma once

#include <span>
#include <string>

#include "schedule/predict.h"

namespace tessera::picture {

// A kernel and the predictions for its regions.
struct Kernel {
  const schedule::KernelProfile& profile;
  const schedule::Prediction& prediction;
};

// Draws the loop with the most bundles, in the kernel with the most; or the
// whole kernel if that has no loop.
Result<std::string> draw_schedule(std::span<const Kernel> kernels);

}  // namespace tessera::picture
