// model/training_run.h: a run of training, from packed rows to its receipt.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "data/row_files.h"
#include "model/learning_rate.h"
#include "receipt/receipt.h"
#include "tessera/train.h"

namespace tessera::model {

// The settings of a run.
struct TrainingRun {
  TrainOptions options;  // its `tokens` are taken from the data
  std::string data;      // packed rows: a file, or a folder of them
  RateSchedule rates;    // its steps include those before a resumed start
  int64_t every = 0;     // steps between checkpoints; 0: only at the end
  std::string start;     // the file of the checkpoint to resume from
  std::optional<std::string> resumed;  // the bytes of that file
};

struct TrainingRows {
  data::RowFiles files;
  std::string digest;
};
// Opens the rows and reads all of them, so that bad rows are found before the
// first step. Sets the run's tokens, and ceilings of shards if none are given.
Result<TrainingRows> read_training_rows(TrainingRun& run);
// Which rows a step takes depends on the step's number alone.
Result<Rows> rows_of_step(const TrainOptions& options, data::RowFiles& files,
                          int64_t step);

// Callbacks of a run; any may be empty.
struct TrainingCalls {
  // Before the first step, with the receipt so far; an error ends the run.
  std::function<Result<void>(const receipt::Receipt&)> begun;
  std::function<void(const StepReport&, double seconds)> stepped;
  // Receives each checkpoint; the last comes after the last step.
  std::function<Result<void>(std::string_view checkpoint)> keep;
};

// Trains on the rows that were read for the run, from start values or from the
// resumed state. The receipt is sealed. A loss or gradient that is not finite
// ends the run with an error, after `stepped` was called.
Result<receipt::Receipt> run_training(TrainingRun run, TrainingRows& rows,
                                      const TrainingCalls& calls = {});

}  // namespace tessera::model
