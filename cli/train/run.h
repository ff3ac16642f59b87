// cli/train/run.h: a training run that says how it goes.
#pragma once

#include "cli/train/flags.h"
#include "model/training_run.h"

namespace tessera::cli {

// Trains, keeps the state and a picture where that was asked for, and says on
// stdout how it goes, unless one object of JSON was asked for.
Result<receipt::Receipt> run_training(model::TrainingRun run,
                                      const TrainFlags& flags,
                                      model::TrainingRows& rows);

// What a receipt tells of, once more. `flags` say where the plugin is.
Result<receipt::Receipt> train_again(const receipt::Receipt& claimed,
                                     const PluginFlags& flags);

}  // namespace tessera::cli
