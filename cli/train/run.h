// cli/train/run.h: runs training and prints its progress.
#pragma once

#include "cli/train/flags.h"
#include "model/training_run.h"

namespace tessera::cli {

// Trains, writes checkpoints and a picture if flags ask for them, and prints
// progress to stdout unless --json is given.
Result<receipt::Receipt> run_training(model::TrainingRun run,
                                      const TrainFlags& flags,
                                      model::TrainingRows& rows);

// Repeats the training run of a receipt, with the plugin of `flags`.
Result<receipt::Receipt> train_again(const receipt::Receipt& claimed,
                                     const PluginFlags& flags);

}  // namespace tessera::cli
