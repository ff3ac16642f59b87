// cli/train/command.cc: `tessera train`: a model trained on packed rows.
#include "cli/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/plan/report.h"
#include "cli/train/ahead.h"
#include "cli/train/report.h"
#include "data/row_files.h"
#include "picture/losses.h"

namespace tessera::cli {
namespace {

Result<void> save(const Trainer& trainer, const std::string& file) {
  auto bytes = trainer.checkpoint();
  if (!bytes) return bytes.error();
  return write_file(file, *bytes);
}

void print_now(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

Result<History> train(Trainer& trainer, const TrainSettings& s,
                      const TrainFlags& f, data::RowFiles& data) {
  using Clock = std::chrono::steady_clock;
  History out;
  out.first = trainer.steps() + 1;
  // Some forty lines, whatever the number of steps.
  const int64_t shown = std::max<int64_t>(1, (s.steps - out.first + 1) / 40);
  for (int64_t step = out.first; step <= s.steps; ++step) {
    const auto start = Clock::now();
    // Which rows a step takes depends on its number alone.
    const int64_t count = s.options.rows;
    auto rows = data.take((step - 1) % data.rows() * count, count);
    if (!rows) return rows.error();
    auto told = trainer.step(*rows, s.rates(step));
    if (!told) return told.error();
    const std::chrono::duration<double> took = Clock::now() - start;
    out.seconds += took.count();
    out.losses.push_back(told->loss);
    out.tokens += told->tokens;
    out.tiles_run += told->tiles_run;
    out.tiles_planned += told->tiles_planned;
    const bool last = step == s.steps;
    if (!f.json && (last || (step - out.first) % shown == 0)) {
      print_now(step_text(s, *told, took.count()));
    }
    if (!std::isfinite(told->loss) || !std::isfinite(told->gradient_norm)) {
      return invalid("train",
                     "loss and gradients must be finite, found {} and {} at "
                     "step {}; the last checkpoint is as it was",
                     told->loss, told->gradient_norm, step);
    }
    if (f.checkpoint && (last || (s.every > 0 && step % s.every == 0))) {
      if (auto e = save(trainer, *f.checkpoint); !e) return e.error();
    }
  }
  return out;
}

// All of the data, so that no run ends at a row of its last step.
Result<void> check_rows(const TrainSettings& s, data::RowFiles& data) {
  const int64_t count = s.options.rows;
  for (int64_t first = 0; first < data.rows(); first += count) {
    auto rows = data.take(first, count);
    if (!rows) return rows.error();
    if (auto e = Trainer::check(s.options, *rows, first); !e) return e;
  }
  return {};
}

Result<int> run(const TrainFlags& f) {
  auto settings = read_train_flags(f);
  if (!settings) return settings.error();
  TrainSettings& s = *settings;
  if (auto e = check_device(s, f); !e) return e.error();
  auto data = data::RowFiles::open(f.data);
  if (!data) return data.error();
  s.options.tokens = data->tokens();
  if (auto e = check_rows(s, *data); !e) return e.error();
  if (f.program) {
    auto text = Trainer::program_text(s.options);
    if (!text) return text.error();
    if (auto e = write_file(*f.program, *text); !e) return e.error();
  }
  if (f.compile_only) return run_ahead(s, f, *data);
  if (s.resumed) {
    if (auto e = Trainer::check(s.options, *s.resumed); !e) return e.error();
  }
  auto work = work_of(s.options);
  if (!work) return work.error();
  auto trainer = Trainer::open(s.options);
  if (!trainer) return trainer.error();
  if (s.resumed) {
    if (auto e = trainer->restore(*s.resumed); !e) return e.error();
    s.resumed.reset();
    if (trainer->steps() >= s.steps) {
      return invalid("train",
                     "--steps must be above those that were done, found {} for "
                     "{}",
                     s.steps, trainer->steps());
    }
  }
  if (!f.json) print_now(head_text(*trainer, s, *work, *data));
  auto history = train(*trainer, s, f, *data);
  if (!history) return history.error();
  if (f.picture) {
    const std::string picture = picture::draw_losses(
        history->losses, history->first, "Loss of " + f.data);
    if (auto e = write_file(*f.picture, picture); !e) return e.error();
  }
  if (f.json) {
    fmt::print("{}\n", json_line(train_json(*trainer, s, *work, *history)));
    return kOk;
  }
  fmt::print(
      "trained    {} tokens in {:.1f} s; {} score tiles run, {} planned\n",
      history->tokens, history->seconds, history->tiles_run,
      history->tiles_planned);
  for (const auto& [word, file] :
       {std::pair("checkpoint", f.checkpoint), std::pair("program", f.program),
        std::pair("picture", f.picture)}) {
    if (file) fmt::print("{:<10} {}\n", word, on_a_line(*file));
  }
  return kOk;
}

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera pack documents.jsonl --tokens 512 -o rows\n"
    "  tessera train --data rows --steps 200 --rate 1e-3 \\\n"
    "      --checkpoint model.safetensors --every 50 --picture loss.svg\n"
    "  tessera train --data rows --steps 400 \\\n"
    "      --resume model.safetensors --checkpoint model.safetensors\n"
    "  tessera train --data rows --rows 4 --mesh data=2,head=2,seq=2\n"
    "  tessera train --data rows --model model.json --spec tpu --dtype bf16 "
    "\\\n"
    "      --compile-only --target v6e:1x1 --save-program step.mlir\n"
    "\n"
    "A model is a JSON object: vocab, layers, width, heads, kv_heads,\n"
    "head_dim, mlp_width, norm (rms, layer), mlp (swiglu, geglu, gelu),\n"
    "fused_mlp, tied_head, post_norms, embedding_scale, norm_eps, rope_theta,\n"
    "rope_factor, rope_low, rope_high, rope_tokens, softcap, final_softcap,\n"
    "score_scale, windows, routes, columns. What is missing keeps its "
    "default.\n"
    "\n"
    "JSON fields: version, spec, slots, model, parameters, mesh, precision, "
    "work[].{slot, flops\n(null where they are the batch's), bytes.{inputs, "
    "parameters, outputs, kept}}, plugin,\nplatform_version, device, program, "
    "specs (how its arrays lie on "
    "the mesh, as a fingerprint;\nlike mesh null where there is none), "
    "compiles, disk_hits, compile_ms, "
    "rows, "
    "tokens, first_step, steps,\nlosses, tokens_that_count, tiles_run, "
    "tiles_planned, seconds.\n"
    "With --compile-only compiled_only, target, bytes.{argument, alias, "
    "output, "
    "temporary,\ncode, peak} (null where the compiler does not say) and "
    "attention (null where it is not by our\nkernels).{cycles_from, gigahertz, "
    "cycles, layers[].{mask, forward_runs,\n"
    "forward_cycles, backward_cycles}} of the step that takes the "
    "first rows, and nothing of steps.";

}  // namespace

Command train_command() {
  auto f = std::make_shared<TrainFlags>();
  Command command{"train", "Train a language model on packed rows"};
  add_train_flags(command, *f);
  command.footer = kFooter;
  command.work = [f] { return run(*f); };
  return command;
}

}  // namespace tessera::cli
