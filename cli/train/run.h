// cli/train/run.h: from settings to a trained model and its receipt.
#pragma once

#include "cli/train/rows.h"
#include "cli/train/settings.h"
#include "receipt/receipt.h"

namespace tessera::cli {

// Trains, keeps the state where that was asked for, and says on stdout how it
// goes, unless one object of JSON was asked for. The receipt is sealed.
Result<receipt::Receipt> run_training(TrainSettings& settings,
                                      const TrainFlags& flags, ReadRows& rows);

// What a receipt tells of, once more. `flags` say where the plugin is.
Result<receipt::Receipt> train_again(const receipt::Receipt& claimed,
                                     const PluginFlags& flags);

}  // namespace tessera::cli
