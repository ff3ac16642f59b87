// model/training_receipt.h: fills in the receipt of a training run.
#pragma once

#include "model/training_run.h"
#include "receipt/receipt.h"

namespace tessera::model {

// A receipt with what was asked, before anything runs.
Result<receipt::Receipt> training_receipt(const TrainingRun& run);
// Adds the program, the plugin that runs it, and warnings.
void add_trainer(const Trainer& trainer, const TrainOptions& options,
                 receipt::Receipt& receipt);
void add_step(const StepReport& step, double seconds,
              receipt::Receipt& receipt);
// Adds what all steps compiled, and how the tiles of all steps were lowered.
void add_end(const Trainer& trainer, receipt::Receipt& receipt);

}  // namespace tessera::model
