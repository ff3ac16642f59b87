// cli/train/receipt.h: between a training run and its receipt.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/train/settings.h"
#include "receipt/receipt.h"

namespace tessera::cli {

// Of what was asked, before anything ran.
Result<receipt::Receipt> training_receipt(const TrainSettings& settings,
                                          const TrainFlags& flags);
// The program, and who runs it.
void add_trainer(const Trainer& trainer, const TrainSettings& settings,
                 receipt::Receipt& receipt);
// What was compiled so far, and warnings.
void add_counters(const TrainCounters& counters, receipt::Receipt& receipt);

// The model of such a receipt, by whom and in which types.
nlohmann::json model_json(const receipt::Receipt& receipt);

// The flags of a receipt's command, but for the plugin, and its model.
TrainFlags flags_of_training(const receipt::Receipt& receipt);

}  // namespace tessera::cli
