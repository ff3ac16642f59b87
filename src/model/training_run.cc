// model/training_run.cc: runs steps, keeps checkpoints, fills the receipt.
#include "model/training_run.h"

#include <cmath>

#include "base/digest.h"
#include "base/fail.h"
#include "base/timed.h"
#include "model/training_receipt.h"

namespace tessera::model {
namespace {

Result<Trainer> open_trainer(TrainingRun& run) {
  if (!run.resumed) return Trainer::open(run.options);
  auto trainer = Trainer::open(run.options, *run.resumed, run.start);
  run.resumed.reset();  // it is as large as the state
  return trainer;
}

Result<void> check_finite(const StepReport& told) {
  if (std::isfinite(told.loss) && std::isfinite(told.gradient_norm)) return {};
  return invalid("train",
                 "loss and gradients must be finite, found {} and {} at step "
                 "{}; the last checkpoint is as it was",
                 told.loss, told.gradient_norm, told.step);
}

// Takes one step and measures its seconds.
Result<StepReport> take_step(Trainer& trainer, const TrainingRun& run,
                             data::RowFiles& files, int64_t step,
                             double& seconds) {
  const auto rates = rates_at(run.rates, step);
  if (!rates) return rates.error();
  double ms = 0;
  auto told = timed(ms, [&]() -> Result<StepReport> {
    auto rows = rows_of_step(run.options, files, step);
    if (!rows) return rows.error();
    return trainer.step(*rows, *rates);
  });
  seconds = ms / 1000;
  return told;
}

// The receipt gets the digest of the state after the last step.
Result<void> keep_state(const Trainer& trainer, bool is_last,
                        const TrainingCalls& calls, receipt::Receipt& r) {
  auto bytes = trainer.checkpoint();
  if (!bytes) return bytes.error();
  if (is_last) r.output_digest = digest_of(*bytes);
  return calls.keep ? calls.keep(*bytes) : Result<void>();
}

Result<void> take_steps(Trainer& trainer, const TrainingRun& run,
                        data::RowFiles& files, const TrainingCalls& calls,
                        receipt::Receipt& r) {
  for (int64_t step = r.training.first_step;; ++step) {
    double seconds = 0;
    auto told = take_step(trainer, run, files, step, seconds);
    if (!told) return told.error();
    add_step(*told, seconds, r);
    if (calls.stepped) calls.stepped(*told, seconds);
    if (auto e = check_finite(*told); !e) return e;
    const bool is_last = step == run.rates.steps;
    const bool is_kept = calls.keep && run.every > 0 && step % run.every == 0;
    if (is_last || is_kept) {
      if (auto e = keep_state(trainer, is_last, calls, r); !e) return e;
    }
    if (is_last) return {};
  }
}

}  // namespace

Result<receipt::Receipt> run_training(TrainingRun run, TrainingRows& rows,
                                      const TrainingCalls& calls) {
  auto receipt = training_receipt(run);
  if (!receipt) return receipt.error();
  receipt->inputs.digests["rows"] = rows.digest;
  auto trainer = open_trainer(run);
  if (!trainer) return trainer.error();
  add_trainer(*trainer, run.options, *receipt);
  if (calls.begun) {
    if (auto e = calls.begun(*receipt); !e) return e.error();
  }
  auto e = take_steps(*trainer, run, rows.files, calls, *receipt);
  if (!e) return e.error();
  add_end(*trainer, *receipt);
  receipt::seal(*receipt);
  return receipt;
}

}  // namespace tessera::model
