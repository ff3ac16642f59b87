// cli/train/receipt.h: the receipt of a training run, as JSON and as flags.
#pragma once

#include <nlohmann/json.hpp>

#include "cli/train/flags.h"
#include "receipt/receipt.h"

namespace tessera::cli {

// The model of a receipt as JSON: sizes, spec and types.
nlohmann::json model_json(const receipt::Receipt& receipt);

// The flags of a receipt's command, without the plugin and the model.
TrainFlags flags_of_training(const receipt::Receipt& receipt);

}  // namespace tessera::cli
