// cli/train/report.h: a training run in words and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/train/settings.h"
#include "data/row_files.h"

namespace tessera::cli {

// The steps that a run took.
struct History {
  int64_t first = 0;  // step
  std::vector<double> losses;
  int64_t tokens = 0, tiles_run = 0, tiles_planned = 0;
  double seconds = 0;
};

// Of all a model's arrays.
int64_t numbers_of(const std::vector<ModelParameter>& parameters);

// What a step takes of a model, before it is compiled.
struct ModelWork {
  int64_t parameters = 0;
  std::vector<SlotWork> slots;
};
Result<ModelWork> work_of(const TrainOptions& options);

// The model, by whom and in which types; the start of every report.
std::string model_text(const TrainSettings& settings, const ModelWork& work);
// The fingerprint of a program for several devices, else null.
nlohmann::json specs_json(const std::string& specs);
nlohmann::json model_json(const TrainSettings& settings, const ModelWork& work);

// What is trained and on what, before the first step; one step of it.
std::string head_text(const Trainer& trainer, const TrainSettings& settings,
                      const ModelWork& work, const data::RowFiles& data);
std::string step_text(const TrainSettings& settings, const StepReport& step,
                      double seconds);

nlohmann::json train_json(const Trainer& trainer, const TrainSettings& settings,
                          const ModelWork& work, const History& history);

}  // namespace tessera::cli
