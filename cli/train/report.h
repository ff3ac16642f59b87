// cli/train/report.h: a training run in words.
#pragma once

#include <string>
#include <vector>

#include "cli/train/settings.h"
#include "data/row_files.h"
#include "receipt/receipt.h"

namespace tessera::cli {

// Of all a model's arrays.
int64_t numbers_of(const std::vector<ModelParameter>& parameters);

// The model, by whom and in which types; the start of every report.
std::string model_text(const receipt::Receipt& receipt);

// What is trained and on what, before the first step; one step of it; the end.
std::string head_text(const TrainSettings& settings,
                      const receipt::Receipt& receipt,
                      const data::RowFiles& data);
std::string step_text(const TrainSettings& settings, const StepReport& step,
                      double seconds);
std::string end_text(const receipt::Receipt& receipt);

}  // namespace tessera::cli
