// cli/train/settings.h: reads a training run from flags.
#pragma once

#include "cli/train/flags.h"
#include "model/training_run.h"

namespace tessera::cli {

Result<model::TrainingRun> read_train_flags(const TrainFlags& flags);

}  // namespace tessera::cli
