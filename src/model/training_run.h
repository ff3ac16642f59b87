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

// What a run is asked for.
struct TrainingRun {
  TrainOptions options;  // tokens are those of the data
  std::string data;      // packed rows: a file, or a folder of them
  RateSchedule rates;    // its steps are all, with those of what is resumed
  int64_t every = 0;     // steps between checkpoints; 0: at the end alone
  std::string start;     // the file of the checkpoint to go on from
  std::optional<std::string> resumed;  // its bytes
};

struct TrainingRows {
  data::RowFiles files;
  std::string digest;
};
// Opens the rows and reads all of them, so that no run ends at a row of its
// last step. The run's options then have their tokens, and ceilings of shards
// where none were given.
Result<TrainingRows> read_training_rows(TrainingRun& run);
// Which rows a step takes depends on its number alone.
Result<Rows> rows_of_step(const TrainOptions& options, data::RowFiles& files,
                          int64_t step);

// What a run tells and asks on its way; any may be left out.
struct TrainingCalls {
  // Before the first step: what its receipt has by then. An error ends the run.
  std::function<Result<void>(const receipt::Receipt&)> begun;
  std::function<void(const StepReport&, double seconds)> stepped;
  // Where its checkpoints go, the last behind the last step.
  std::function<Result<void>(std::string_view checkpoint)> keep;
};

// Trains, from the first parameters or from what is resumed, on the rows that
// were read for the run. The receipt is sealed. A loss or a gradient that is
// not finite ends it, after it was told.
Result<receipt::Receipt> run_training(TrainingRun run, TrainingRows& rows,
                                      const TrainingCalls& calls = {});

}  // namespace tessera::model
