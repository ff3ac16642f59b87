// cli/train/compile_only.cc: compiles a step without running it, and reports on
// it as text and JSON.
#include "cli/train/compile_only.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/command.h"
#include "cli/json_line.h"
#include "cli/lowering.h"
#include "cli/run/cache_report.h"
#include "cli/shard/program.h"
#include "cli/train/receipt.h"
#include "cli/train/report.h"
#include "cli/warnings.h"
#include "lanes/mosaic/tpu.h"
#include "model/compile_ahead.h"
#include "model/layer.h"
#include "model/training_receipt.h"
#include "schedule/chip.h"

namespace tessera::cli {
namespace {

using model::AheadReport;
using model::LayerCycles;
using nlohmann::json;

std::string asked_target(const TrainFlags& f) {
  return f.target.value_or("v6e:1x1");
}

json cycles_json(const std::optional<double>& cycles) {
  return cycles ? json(*cycles) : json();
}

json bytes_json(const AheadReport& r) {
  if (!r.memory) return {};
  return {{"code", r.memory->code},
          {"argument", r.memory->argument},
          {"output", r.memory->output},
          {"alias", r.memory->alias},
          {"temporary", r.memory->temporary},
          {"peak", r.memory->peak ? json(*r.memory->peak) : json()}};
}

json compiled_json(const AheadReport& r, const receipt::Receipt& asked) {
  json out = model_json(asked);
  out.update(
      {{"compiled_only", true},
       {"target", r.target},
       {"platform_version", r.platform_version},
       {"program", r.program},
       {"specs", r.specs.empty() ? json() : json(r.specs)},
       {"compile_ms", r.compile_ms},
       {"bytes", bytes_json(r)},
       {"lowering", r.lowering ? lowering_json(*r.lowering) : json()},
       {"attention", attention_json(r)},
       {"collectives",
        r.collectives.empty() ? json() : collectives_json(r.collectives)}});
  return out;
}

std::string cycles_text(const std::optional<double>& cycles) {
  return cycles ? fmt::format("{:.0f}", *cycles) : "unknown";
}

std::string sent_text(const AheadReport& r) {
  if (r.collectives.empty()) return "";
  int64_t bytes = 0, beside = 0;
  for (const schedule::Collective& c : r.collectives) {
    bytes += c.bytes;
    beside += c.ops_between > 0 ? 1 : 0;
  }
  return fmt::format(
      "travel     {} bytes of a chip in {} collectives, {} of them beside "
      "other "
      "ops\n",
      bytes, r.collectives.size(), beside);
}

std::string compiled_text(const TrainOptions& o, const AheadReport& r,
                          const receipt::Receipt& asked) {
  std::string out =
      model_text(asked) +
      fmt::format(
          "compiled   only, for {}, a step of {} rows of {} tokens: {} in "
          "{:.0f} "
          "ms\n",
          r.target, o.rows, o.tokens, r.program, r.compile_ms);
  if (r.lowering) {
    out += fmt::format("lowering   {}\n", lowering_text(*r.lowering));
  }
  if (r.memory) {
    out += fmt::format(
        "bytes      {} of arguments, {} of them donated; {} of outputs, {} of "
        "temporaries{}\n",
        r.memory->argument, r.memory->alias, r.memory->output,
        r.memory->temporary, o.mesh.devices() > 1 ? ", on each chip" : "");
  }
  out += sent_text(r);
  return out + attention_text(r, o.mesh.devices());
}

}  // namespace

json attention_json(const AheadReport& r) {
  if (r.attention.empty()) return {};
  json layers = json::array();
  for (const LayerCycles& layer : r.attention) {
    layers.push_back({{"mask", layer.mask},
                      {"forward_runs", layer.forward_runs},
                      {"forward_cycles", cycles_json(layer.forward)},
                      {"backward_cycles", cycles_json(layer.backward)}});
  }
  json out = {
      {"cycles_from", "predicted"},
      {"gigahertz", r.gigahertz},
      {"cycles", cycles_json(r.attention_cycles())},
      {"exchange", r.collectives.empty() ? json() : json("not predicted")},
      {"layers", layers}};
  schedule::add_known(out, r.target);
  return out;
}

std::string attention_text(const AheadReport& r, int64_t devices) {
  if (r.attention.empty()) return "";
  std::string out = fmt::format(
      "attention  {} cycles predicted ({}) for the first step's rows{}, at {} "
      "GHz (assumed)\n",
      cycles_text(r.attention_cycles()), schedule::known_words(r.target),
      devices > 1 ? " on the slowest chip" : "", r.gigahertz);
  int64_t number = 0;
  for (const LayerCycles& layer : r.attention) {
    out += fmt::format("  layer {:<3} forward {}{}, backward {}: {}\n",
                       number++, cycles_text(layer.forward),
                       layer.forward_runs > 1 ? " twice" : "",
                       cycles_text(layer.backward), layer.mask);
  }
  if (!r.collectives.empty()) {
    out += "  exchange  not predicted: what travels, and waits for it\n";
  }
  return out;
}

Result<void> check_device(const model::TrainingRun& run, const TrainFlags& f) {
  if (f.compile_only) {
    auto lowering = model::check_target(run.options, asked_target(f));
    return lowering ? Result<void>() : lowering.error();
  }
  if (!model::has_kernels(run.options.spec)) return {};
  return mosaic::check_tpu_here(run.options.xla);
}

Result<int> run_compile_only(const model::TrainingRun& run, const TrainFlags& f,
                             data::RowFiles& data) {
  auto rows = data.take(0, run.options.rows);
  if (!rows) return rows.error();
  auto asked = model::training_receipt(run);
  if (!asked) return asked.error();
  auto report = model::compile_ahead(run.options, asked_target(f), *rows);
  if (!report) return report.error();
  if (f.json) {
    fmt::print("{}\n", json_line(compiled_json(*report, *asked)));
    return kOk;
  }
  fmt::print("{}", compiled_text(run.options, *report, *asked));
  if (f.program) fmt::print("program    {}\n", on_a_line(*f.program));
  return kOk;
}

Result<int> run_warm(const TrainOptions& o, const TrainFlags& f) {
  auto trainer = Trainer::compile(o);
  if (!trainer) return trainer.error();
  const TrainCounters did = trainer->counters();
  print_warnings(did.plugin_warnings);  // they do not affect the exit code
  return print_cache_report(
      {did, did.compile_ms, o.xla.cache_folder, did.warnings}, f.json,
      {{"program", trainer->program_key()}},
      fmt::format("{:<11} {}, a step of {} rows of {} tokens\n", "program",
                  trainer->program_key(), o.rows, o.tokens));
}

std::span<const JsonField> ahead_json_fields() {
  static constexpr JsonField kFields[] = {
      {"tessera, spec, parameters, mesh, rows, tokens, slots.NAME, model.NAME, "
       "work[].NAME, precision.NAME, exchange.NAME",
       "with --compile-only, as a receipt has them"},
      {"compiled_only, target, platform_version, specs, compile_ms"},
      {"program", "its key; with --warm too"},
      {"bytes.{argument,alias,output,temporary,code,peak}",
       "null where the compiler does not say"},
      {"lowering.{chip,granule,tile,reason,factor}",
       "null where attention has no tiles"},
      {"attention.{cycles_from,gigahertz,cycles}, "
       "attention.layers[].{mask,forward_runs,forward_cycles,backward_cycles}",
       "for the step that takes the first rows; null where attention is not by "
       "our kernels"},
      {"attention.{calibrated,calibrated_on}",
       "false: no times of these kernels are known; on this chip those of "
       "calibrated_on are"},
      {"attention.exchange",
       "'not predicted' where tiles travel: that time is in no cycles; else "
       "null"},
      {"collectives[].NAME",
       "as `tessera shard --compile` has them; null where nothing travels"},
      {kCacheFields, "with --warm"},
  };
  return kFields;
}

}  // namespace tessera::cli
