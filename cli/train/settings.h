// cli/train/settings.h: what `tessera train` was asked for.
#pragma once

#include <cstdint>

#include "cli/train/flags.h"
#include "tessera/train.h"

namespace tessera::cli {

struct TrainSettings {
  TrainOptions options;  // tokens are those of the data
  int64_t steps = 0;     // in all, with those of what is resumed
  int64_t warmup = 0;
  int64_t every = 0;  // 0: at the end alone
  StepRates peak;
  std::optional<std::string> resumed;  // the checkpoint to go on from
  std::string target;  // that a step is compiled for and not run

  // Rises to the peak over the warm-up, then falls as a cosine to a tenth of it
  // at the last step.
  StepRates rates(int64_t step) const;
};

Result<TrainSettings> read_train_flags(const TrainFlags& flags);

}  // namespace tessera::cli
