// cli/train/settings.h: what `tessera train` was asked for.
#pragma once

#include "cli/train/flags.h"
#include "model/training_run.h"

namespace tessera::cli {

Result<model::TrainingRun> read_train_flags(const TrainFlags& flags);

}  // namespace tessera::cli
