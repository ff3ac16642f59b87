// model/training_receipt.h: what a run of training has in its receipt.
#pragma once

#include "model/training_run.h"
#include "receipt/receipt.h"

namespace tessera::model {

// Of what was asked, before anything ran.
Result<receipt::Receipt> training_receipt(const TrainingRun& run);
// The program, and who runs it; warnings.
void add_trainer(const Trainer& trainer, const TrainOptions& options,
                 receipt::Receipt& receipt);
void add_step(const StepReport& step, double seconds,
              receipt::Receipt& receipt);
// What all steps compiled, and what their tiles paid.
void add_end(const Trainer& trainer, receipt::Receipt& receipt);

}  // namespace tessera::model
