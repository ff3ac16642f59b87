// cli/train/compile_only.h: `tessera train` that compiles and runs no step.
#pragma once

#include <span>

#include "cli/command.h"
#include "cli/train/settings.h"
#include "data/row_files.h"

namespace tessera::cli {

// That the step can be compiled for what was asked, or run here, as far as it
// is known before any work.
Result<void> check_device(const model::TrainingRun& run,
                          const TrainFlags& flags);

// Compiles the step for a TPU, which need not be here, and says what it takes.
Result<int> run_compile_only(const model::TrainingRun& run,
                             const TrainFlags& flags, data::RowFiles& data);

// Compiles it for the device that will run it, into the cache.
Result<int> run_warm(const TrainOptions& options, const TrainFlags& flags);

// Of the JSON of both.
std::span<const JsonField> ahead_json_fields();

}  // namespace tessera::cli
