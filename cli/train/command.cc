// cli/train/command.cc: `tessera train`: a model trained on packed rows.
#include "cli/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/plan/report.h"
#include "cli/train/ahead.h"
#include "data/row_files.h"
#include "model/precision.h"
#include "picture/losses.h"
#include "tessera/version.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

constexpr int64_t kMaxCheckpointBytes = int64_t{1} << 40;

struct History {
  int64_t first = 0;  // step
  std::vector<double> losses;
  int64_t tokens = 0, tiles_run = 0, tiles_planned = 0;
  double seconds = 0;
};

Result<void> save(const Trainer& trainer, const std::string& file) {
  auto bytes = trainer.checkpoint();
  if (!bytes) return bytes.error();
  return write_file(file, *bytes);
}

void print_step(const TrainSettings& s, const StepReport& told,
                double seconds) {
  fmt::print(
      "step {:>6} of {}   loss {:<8.4f} norm {:<8.3f} {:>8.0f} "
      "tokens/s\n",
      told.step, s.steps, told.loss, told.gradient_norm,
      static_cast<double>(told.tokens) / seconds);
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
      print_step(s, *told, took.count());
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

json report_json(const Trainer& trainer, const TrainSettings& s,
                 const History& h) {
  const TrainCounters counters = trainer.counters();
  int64_t parameters = 0;
  for (const ModelParameter& p : trainer.parameters()) parameters += p.size();
  json slots;
  for (size_t i = 0; i < kSlots; ++i) {
    slots[std::string(to_string(static_cast<Slot>(i)))] =
        s.options.spec.factories[i];
  }
  const PluginPlace& place = trainer.place();
  return {
      {"version", kVersion},
      {"spec", s.options.spec.name},
      {"slots", slots},
      {"model", json::parse(to_json(s.options.model))},
      {"parameters", parameters},
      {"precision", json::parse(model::precision_json(s.options.precision))},
      {"plugin", place.plugin},
      {"platform_version", place.platform_version},
      {"device", place.device},
      {"program", trainer.program_key()},
      {"compiles", counters.compiles},
      {"disk_hits", counters.disk_hits},
      {"compile_ms", counters.compile_ms},
      {"rows", s.options.rows},
      {"tokens", s.options.tokens},
      {"first_step", h.first},
      {"steps", s.steps},
      {"losses", h.losses},
      {"tokens_that_count", h.tokens},
      {"tiles_run", h.tiles_run},
      {"tiles_planned", h.tiles_planned},
      {"seconds", h.seconds},
  };
}

void print_head(const Trainer& trainer, const TrainSettings& s,
                const data::RowFiles& data) {
  int64_t parameters = 0;
  for (const ModelParameter& p : trainer.parameters()) parameters += p.size();
  const TrainCounters counters = trainer.counters();
  fmt::print(
      "model      {} layers, {} parameters; spec {}: attention by {}\n"
      "precision  {}\n"
      "data       {} rows of {} tokens, {} a step\n"
      "program    {} on {}: {} in {:.0f} ms\n",
      s.options.model.layers, parameters, s.options.spec.name,
      s.options.spec.of(Slot::attention),
      model::precision_text(s.options.precision), data.rows(), data.tokens(),
      s.options.rows, trainer.program_key(), trainer.place().device,
      counters.compiles > 0 ? "compiled" : "found on disk",
      counters.compile_ms);
  std::fflush(stdout);
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
  std::string resumed;
  if (f.resume) {
    auto bytes = read_file(*f.resume, kMaxCheckpointBytes);
    if (!bytes) return bytes.error();
    resumed = std::move(*bytes);
    if (auto e = Trainer::check(s.options, resumed); !e) return e.error();
  }
  auto trainer = Trainer::open(s.options);
  if (!trainer) return trainer.error();
  if (f.resume) {
    if (auto e = trainer->restore(resumed); !e) return e.error();
    resumed.clear();
    if (trainer->steps() >= s.steps) {
      return invalid("train",
                     "--steps must be above those that were done, found {} for "
                     "{}",
                     s.steps, trainer->steps());
    }
  }
  if (!f.json) print_head(*trainer, s, *data);
  auto history = train(*trainer, s, f, *data);
  if (!history) return history.error();
  if (f.picture) {
    const std::string picture = picture::draw_losses(
        history->losses, history->first, "Loss of " + f.data);
    if (auto e = write_file(*f.picture, picture); !e) return e.error();
  }
  if (f.json) {
    fmt::print("{}\n", json_line(report_json(*trainer, s, *history)));
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
    "  tessera train --data rows --model model.json --spec tpu --dtype bf16 "
    "\\\n"
    "      --compile-only --target v6e:1x1 --save-program step.mlir\n"
    "\n"
    "A model is a JSON object: vocab, layers, width, heads, kv_heads, "
    "head_dim, "
    "mlp_width,\nnorm (rms, layer), mlp (swiglu, geglu, gelu), fused_mlp, "
    "tied_head, post_norms,\nembedding_scale, norm_eps, rope_theta, softcap, "
    "final_softcap, score_scale, windows, columns.\nWhat is missing keeps its "
    "default.\n"
    "\n"
    "JSON fields: version, spec, slots, model, parameters, precision, plugin, "
    "platform_version,\ndevice, program, compiles, disk_hits, compile_ms, "
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
  add_flags(
      command,
      {
          {"--data", &f->data, "FILE",
           "Packed rows: a file, or a folder as `tessera pack` writes", true},
          {"--model", &f->model, "FILE",
           "Sizes and settings as JSON [a small one]"},
          {"--spec", &f->spec, "NAME",
           "Who fills the slots: xla (attention over the plan's worklist), "
           "reference (over every pair) or tpu (by our TPU kernels) [xla]"},
          {"--steps", &f->steps, "N", "In all, with those resumed [100]"},
          {"--rows", &f->rows, "N", "Of each step [1]"},
          {"--rate", &f->rate, "X", "The highest learning rate [3e-4]"},
          {"--warmup", &f->warmup, "N",
           "Steps up to it; it falls as a cosine to a tenth then [a "
           "twentieth]"},
          {"--max-norm", &f->max_norm, "X",
           "Longer gradients are scaled down to it [1]"},
          {"--weight-decay", &f->weight_decay, "X", "Of matrices [0.1]"},
          {"--dtype", &f->dtype, "TYPE", "Of products: f32 or bf16 [f32]"},
          {"--tile", &f->tile, "QxKV", "Of scores [256x256; of tpu 512x512]"},
          {"--recompute", &f->recompute, "",
           "Blocks keep their input alone, and compute the rest again"},
          {"--seed", &f->seed, "N", "Of the first parameters [0]"},
          {"--checkpoint", &f->checkpoint, "FILE",
           "Where to keep the state: .safetensors"},
          {"--every", &f->every, "N", "Steps between checkpoints [at the end]"},
          {"--resume", &f->resume, "FILE",
           "A checkpoint to go on from; without moments, to start from"},
          {"--picture", &f->picture, "FILE", "The losses as SVG"},
          {"--save-program", &f->program, "FILE",
           "The step's StableHLO, as it is compiled"},
          {"--compile-only", &f->compile_only, "",
           "Compile the step for a TPU that need not be here, and run nothing"},
          {"--target", &f->target, "TARGET",
           "The TPU of --compile-only, of one device [v6e:1x1]"},
          {"--plugin", &f->plugin, "NAME",
           "A file or a known name [xla_cpu_pjrt; of a TPU libtpu]"},
          {"--device", &f->device, "N", "Of the plugin's devices [0]"},
          {"--cache", &f->cache, "FOLDER",
           "Keeps what is compiled; or off [TESSERA_CACHE, or the user's cache "
           "folder]"},
          {"--json", &f->json, "", "One JSON object on stdout"},
      });
  command.footer = kFooter;
  command.work = [f] { return run(*f); };
  return command;
}

}  // namespace tessera::cli
