// cli/train/compile_only.h: `tessera train --compile-only` and `--warm`, which
// run no step.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "cli/command.h"
#include "cli/train/settings.h"
#include "data/row_files.h"
#include "model/compile_ahead.h"

namespace tessera::cli {

// Checks, as far as possible before any work, that the step can be compiled for
// the target, or can run here.
Result<void> check_device(const model::TrainingRun& run,
                          const TrainFlags& flags);

// Compiles the step for a TPU, which this machine may lack, and prints what the
// step needs.
Result<int> run_compile_only(const model::TrainingRun& run,
                             const TrainFlags& flags, data::RowFiles& data);

// What is predicted of its attention, as JSON and as text: null and "" where
// nothing is.
nlohmann::json attention_json(const model::AheadReport& report);
std::string attention_text(const model::AheadReport& report, int64_t devices);

// Compiles the step for the device that will run it, into the cache.
Result<int> run_warm(const TrainOptions& options, const TrainFlags& flags);

// The JSON fields of both.
std::span<const JsonField> ahead_json_fields();

}  // namespace tessera::cli
