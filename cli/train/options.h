// cli/train/options.h: how `tessera train` trains, from its flags.
#pragma once

#include <optional>
#include <string>

#include "cli/train/flags.h"
#include "tessera/train.h"

namespace tessera::cli {

// Of --rows and of --steps.
inline constexpr int64_t kMaxSteps = int64_t{1} << 40;

// `resumed`: the checkpoint to go on from.
Result<void> read_train_options(const TrainFlags& flags,
                                const std::optional<std::string>& resumed,
                                TrainOptions& options);

}  // namespace tessera::cli
