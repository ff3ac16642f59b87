// cli/train/run.h: from settings to a trained model and its receipt.
#pragma once

#include "cli/train/settings.h"
#include "data/row_files.h"
#include "receipt/receipt.h"

namespace tessera::cli {

// Opens the rows and reads all of them, so that no run ends at a row of its
// last step; their digest. The settings then have their tokens, and ceilings of
// shards where none were given.
struct ReadRows {
  data::RowFiles files;
  std::string digest;
};
Result<ReadRows> read_rows(TrainSettings& settings, const TrainFlags& flags);

// Trains, keeps the state where that was asked for, and says on stdout how it
// goes, unless one object of JSON was asked for. The receipt is sealed.
Result<receipt::Receipt> run_training(TrainSettings& settings,
                                      const TrainFlags& flags, ReadRows& rows);

// What a receipt tells of, once more. `flags` say where the plugin is.
Result<receipt::Receipt> train_again(const receipt::Receipt& claimed,
                                     const PluginFlags& flags);

}  // namespace tessera::cli
