// cli/train/options.h: reads the trainer's options from flags.
#pragma once

#include <optional>
#include <string>

#include "cli/train/flags.h"
#include "tessera/train.h"

namespace tessera::cli {

// The largest --rows and --steps.
inline constexpr int64_t kMaxSteps = int64_t{1} << 40;

// `resumed`: the content of the checkpoint to continue from.
Result<void> read_train_options(const TrainFlags& flags,
                                const std::optional<std::string>& resumed,
                                TrainOptions& options);

}  // namespace tessera::cli
