// cli/train/run.cc: the steps of a run, what it keeps, what it tells.
#include "cli/train/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/digest.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/train/compile_only.h"
#include "cli/train/receipt.h"
#include "cli/train/report.h"
#include "cli/warnings.h"
#include "picture/losses.h"
#include "receipt/lowering.h"

namespace tessera::cli {
namespace {

void print_now(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

void add_step(const StepReport& told, double seconds, receipt::Receipt& r) {
  r.plan_ms += told.plan_ms;
  r.transfer_ms += told.transfer_ms;
  r.run_ms += told.run_ms;
  r.training.seconds += seconds;
  r.training.losses.push_back(told.loss);
  r.training.counted += told.tokens;
  r.training.tiles_run += told.tiles_run;
  r.training.tiles_planned += told.tiles_planned;
  r.training.attention_flops += told.attention_flops;
  if (!r.training.exchange) return;
  receipt::Receipt::Training::Exchange& e = *r.training.exchange;
  e.sent += told.sent;
  e.all_gather += told.all_gather;
  const auto steps = static_cast<double>(r.training.losses.size());
  e.tiles_max_over_mean +=
      (told.tiles_max_over_mean - e.tiles_max_over_mean) / steps;
}

// The state behind the last step, whose digest the receipt has.
Result<void> finish(const Trainer& trainer, const TrainFlags& f,
                    receipt::Receipt& r) {
  auto bytes = trainer.checkpoint();
  if (!bytes) return bytes.error();
  r.output_digest = digest_of(*bytes);
  if (!f.checkpoint) return {};
  return write_file(*f.checkpoint, *bytes);
}

Result<void> train(Trainer& trainer, const TrainSettings& s,
                   const TrainFlags& f, data::RowFiles& data,
                   receipt::Receipt& r) {
  using Clock = std::chrono::steady_clock;
  const int64_t first = r.training.first_step;
  // Some forty lines, whatever the number of steps.
  const int64_t shown = std::max<int64_t>(1, (s.steps - first + 1) / 40);
  for (int64_t step = first; step <= s.steps; ++step) {
    const auto start = Clock::now();
    auto rows = rows_of_step(s, data, step);
    if (!rows) return rows.error();
    auto told = trainer.step(*rows, s.rates(step));
    if (!told) return told.error();
    const std::chrono::duration<double> took = Clock::now() - start;
    add_step(*told, took.count(), r);
    const bool last = step == s.steps;
    if (!f.json && (last || (step - first) % shown == 0)) {
      print_now(step_text(s, *told, took.count()));
    }
    if (!std::isfinite(told->loss) || !std::isfinite(told->gradient_norm)) {
      return invalid("train",
                     "loss and gradients must be finite, found {} and {} at "
                     "step {}; the last checkpoint is as it was",
                     told->loss, told->gradient_norm, step);
    }
    if (last) return finish(trainer, f, r);
    if (f.checkpoint && s.every > 0 && step % s.every == 0) {
      auto bytes = trainer.checkpoint();
      if (!bytes) return bytes.error();
      if (auto e = write_file(*f.checkpoint, *bytes); !e) return e;
    }
  }
  return {};
}

Result<Trainer> open_trainer(TrainSettings& s) {
  if (!s.resumed) return Trainer::open(s.options);
  auto trainer = Trainer::open(s.options, *s.resumed);
  if (!trainer) return trainer;
  s.resumed.reset();
  if (trainer->steps() < s.steps) return trainer;
  return invalid("train",
                 "--steps must be above those that were done, found {} for {}",
                 s.steps, trainer->steps());
}

}  // namespace

Result<receipt::Receipt> run_training(TrainSettings& s, const TrainFlags& f,
                                      ReadRows& rows) {
  auto receipt = training_receipt(s, f);
  if (!receipt) return receipt.error();
  receipt->inputs.digests["rows"] = rows.digest;
  auto trainer = open_trainer(s);
  if (!trainer) return trainer.error();
  add_trainer(*trainer, s, *receipt);
  print_warnings(receipt->warnings);
  if (!f.json) print_now(head_text(s, *receipt, rows.files));
  auto e = train(*trainer, s, f, rows.files, *receipt);
  if (!e) return e.error();
  add_counters(trainer->counters(), *receipt);  // of all steps
  if (const auto& lowering = trainer->lowering()) {
    const int64_t tiles = receipt->training.tiles_run;
    receipt->lowering = receipt::lowering_of(
        *lowering, tiles * lowering->tile.q * lowering->tile.kv);
  }
  if (f.picture) {
    const std::string picture =
        picture::draw_losses(receipt->training.losses,
                             receipt->training.first_step, "Loss of " + f.data);
    if (e = write_file(*f.picture, picture); !e) return e.error();
  }
  receipt::seal(*receipt);
  return receipt;
}

Result<receipt::Receipt> train_again(const receipt::Receipt& claimed,
                                     const PluginFlags& plugin) {
  TrainFlags flags = flags_of_training(claimed);
  static_cast<PluginFlags&>(flags) = plugin;
  auto settings = read_train_flags(flags);
  if (!settings) return settings.error();
  auto model = parse_model_config(claimed.training.model);
  if (!model) return model.error();
  settings->options.model = std::move(*model);
  if (auto e = check_device(*settings, flags); !e) return e.error();
  auto rows = read_rows(*settings, flags);
  if (!rows) return rows.error();
  // A checkpoint is often written over by the run that goes on from it.
  if (settings->resumed) {
    const auto was = claimed.inputs.digests.find("start");
    const std::string found = digest_of(*settings->resumed);
    if (was == claimed.inputs.digests.end() || was->second != found) {
      return unavailable("receipt",
                         "the checkpoint that a run resumed must be unchanged, "
                         "found digest {} for {}",
                         found, in_quotes(claimed.training.start));
    }
  }
  return run_training(*settings, flags, *rows);
}

}  // namespace tessera::cli
