// cli/train/run.cc: runs training, prints progress and writes files.
#include "cli/train/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/digest.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/train/compile_only.h"
#include "cli/train/receipt.h"
#include "cli/train/report.h"
#include "cli/train/settings.h"
#include "cli/warnings.h"
#include "picture/losses.h"

namespace tessera::cli {
namespace {

void print_now(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

}  // namespace

Result<receipt::Receipt> run_training(model::TrainingRun run,
                                      const TrainFlags& f,
                                      model::TrainingRows& rows) {
  const int64_t steps = run.rates.steps;
  int64_t first = 1;
  model::TrainingCalls calls;
  calls.begun = [&](const receipt::Receipt& r) -> Result<void> {
    first = r.training.first_step;
    if (first > steps) {
      return invalid(
          "train",
          "--steps must be above those that were done, found {} for {}", steps,
          first - 1);
    }
    print_warnings(r.warnings);
    if (!f.json) print_now(head_text(r, rows.files));
    return {};
  };
  calls.stepped = [&](const StepReport& told, double seconds) {
    // About forty lines, for any number of steps.
    const int64_t shown = std::max<int64_t>(1, (steps - first + 1) / 40);
    const bool is_shown =
        told.step == steps || (told.step - first) % shown == 0;
    if (is_shown && !f.json) print_now(step_text(told, steps, seconds));
  };
  if (f.checkpoint) {
    calls.keep = [&](std::string_view checkpoint) {
      return rewrite_file(*f.checkpoint, checkpoint);
    };
  }
  auto receipt = model::run_training(std::move(run), rows, calls);
  if (!receipt || !f.picture) return receipt;
  const receipt::Receipt::Training& t = receipt->training;
  auto e = rewrite_file(*f.picture, picture::draw_losses(t.losses, t.first_step,
                                                         "Loss of " + f.data));
  if (!e) return e.error();
  return receipt;
}

Result<receipt::Receipt> train_again(const receipt::Receipt& claimed,
                                     const PluginFlags& plugin) {
  TrainFlags flags = flags_of_training(claimed);
  static_cast<PluginFlags&>(flags) = plugin;
  auto run = read_train_flags(flags);
  if (!run) return run.error();
  auto model = parse_model_config(claimed.training.model);
  if (!model) return model.error();
  run->options.model = std::move(*model);
  if (auto e = check_device(*run, flags); !e) return e.error();
  auto rows = model::read_training_rows(*run);
  if (!rows) return rows.error();
  // A run often overwrites the checkpoint that it resumed.
  if (run->resumed) {
    const auto was = claimed.inputs.digests.find("start");
    const std::string found = digest_of(*run->resumed);
    if (was == claimed.inputs.digests.end() || was->second != found) {
      return unavailable("receipt",
                         "the checkpoint that a run resumed must be unchanged, "
                         "found digest {} for {}",
                         found, in_quotes(claimed.training.start));
    }
  }
  return run_training(std::move(*run), flags, *rows);
}

}  // namespace tessera::cli
