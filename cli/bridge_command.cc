// cli/bridge_command.cc: `tessera bridge`: what JAX exported, run by a plugin.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/bridge_data.h"
#include "cli/bridge_report.h"
#include "cli/cache_folder.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/numbers.h"
#include "cli/progress.h"
#include "cli/traced.h"
#include "lanes/jax_bridge/attention.h"
#include "lanes/reference/judge.h"
#include "tessera/legal.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMaxShapes = int64_t{1} << 24;
constexpr int64_t kMaxArtifact = int64_t{1} << 31;
constexpr int64_t kMostDevices = int64_t{1} << 20;
constexpr int64_t kSampledRows = 64;

struct Flags {
  std::optional<std::string> artifact, shapes, inputs, seed, outputs, receipt,
      plugin, device, cache, trace;
  bool check = false;
  bool json = false;
};

// Every file has a name of its own, and what is written can be.
Result<void> check_files(const Flags& f) {
  std::vector<std::string> paths;
  for (const auto* path :
       {&f.artifact, &f.shapes, &f.inputs, &f.outputs, &f.receipt, &f.trace}) {
    if (!*path) continue;
    if (std::find(paths.begin(), paths.end(), **path) != paths.end()) {
      return invalid("cli",
                     "each file must have a name of its own, found {} twice",
                     in_quotes(**path));
    }
    paths.push_back(**path);
  }
  for (const auto* path : {&f.outputs, &f.receipt}) {
    if (!*path) continue;
    if (auto e = check_output(**path); !e) return e;
  }
  return {};
}

Result<BridgeOptions> read_options(const Flags& f) {
  BridgeOptions out;
  if (f.plugin) out.plugin = *f.plugin;
  auto device = parse_int(f.device.value_or("0"), "--device", 0, kMostDevices);
  if (!device) return device.error();
  out.device = *device;
  auto folder = cache_folder(f.cache);
  if (!folder) return folder.error();
  out.cache_folder = std::move(*folder);
  return out;
}

// Everything that strangers gave, before any work.
struct Asked {
  BridgeOptions options;
  BridgeSpec spec;
  std::string artifact;
  BridgeData data;
  uint64_t seed = 0;
};

Result<Asked> read_all(const Flags& f) {
  Asked out;
  auto options = read_options(f);
  if (!options) return options.error();
  out.options = std::move(*options);
  auto seed = parse_int(f.seed.value_or("0"), "--seed", 0, int64_t{1} << 62);
  if (!seed) return seed.error();
  out.seed = static_cast<uint64_t>(*seed);
  if (f.seed && f.inputs) {
    return invalid("cli", "--seed goes without --inputs, found both");
  }
  auto text = read_file(*f.shapes, kMaxShapes);
  if (!text) return text.error();
  auto spec = parse_bridge_spec(*text);
  if (!spec) return spec.error();
  out.spec = std::move(*spec);
  if (f.check && !out.spec.attention) {
    return invalid("cli",
                   "--check needs an operation that the file of shapes "
                   "declares as attention, found {}",
                   in_quotes(out.spec.operation));
  }
  auto artifact = read_file(*f.artifact, kMaxArtifact);
  if (!artifact) return artifact.error();
  out.artifact = std::move(*artifact);
  if (auto e = check_room(out.spec); !e) return e.error();
  auto inputs = f.inputs ? read_bridge_inputs(*f.inputs, out.spec)
                         : draw_bridge_inputs(out.spec, out.seed);
  if (!inputs) return inputs.error();
  out.data.inputs = std::move(*inputs);
  out.data.outputs = make_bridge_outputs(out.spec);
  return out;
}

Result<Receipt::Check> judge(const bridge::AttentionCall& call, uint64_t seed) {
  Progress progress("checking");
  JudgeOptions options;
  options.seed = seed;
  options.progress = progress.callback();
  // XLA's processors do, whoever wrote the program.
  options.flushes = true;
  const bool full = can_judge_all(call.request, call.shape);
  if (!full) options.query_rows = kSampledRows;
  auto verdict = judge_forward(call.request, call.facts, call.shape,
                               call.tensors, options);
  if (!verdict) return verdict.error();
  return Receipt::Check{full ? "full" : "sampled", verdict->rows,
                        verdict->max_error,        verdict->max_ratio,
                        verdict->passed(),         verdict->worst};
}

Result<int> run(const Flags& f) {
  auto asked = read_all(f);
  if (!asked) return asked.error();
  const auto inputs = asked->data.input_pointers();
  const auto outputs = asked->data.output_pointers();
  std::optional<bridge::AttentionCall> call;
  if (f.check) {
    auto bound = bridge::attention_call(asked->spec, inputs, outputs);
    if (!bound) return bound.error();
    // Facts that do not fit are refused before any work.
    auto legal = Legality::bind(bound->request, bound->facts);
    if (!legal) return legal.error();
    call = std::move(*bound);
  }
  auto lane = BridgeLane::open(asked->options);
  if (!lane) return lane.error();
  auto ran = lane->run(asked->artifact, asked->spec, inputs, outputs);
  if (!ran) return ran.error();
  for (const std::string& warning : ran->warnings) {
    print_error(fmt::format("tessera: warning: {}\n", warning));
  }

  BridgeReport report;
  report.place = lane->place();
  report.run = std::move(*ran);
  report.artifact_file = *f.artifact;
  report.shapes_file = *f.shapes;
  report.inputs_file = f.inputs.value_or("");
  report.seed = asked->seed;
  report.input_digests = digests_of(asked->spec.inputs, asked->data.inputs);
  report.output_digest = digest_of_all(asked->data.outputs);
  if (call) {
    auto check = judge(*call, asked->seed);
    if (!check) return check.error();
    report.check = std::move(*check);
  }
  if (f.outputs) {
    auto e = write_bridge_outputs(*f.outputs, asked->spec, asked->data.outputs);
    if (!e) return e.error();
  }
  report.spec = std::move(asked->spec);
  if (f.receipt) {
    auto e = write_file(*f.receipt, bridge_json(report, 2) + "\n");
    if (!e) return e.error();
  }
  if (f.json) {
    fmt::print("{}\n", bridge_json(report));
  } else {
    fmt::print("{}", bridge_text(report));
    if (f.outputs) fmt::print("{:<11} {}\n", "written", *f.outputs);
    if (f.receipt) fmt::print("{:<11} {}\n", "receipt", *f.receipt);
  }
  return f.check && !report.check.passed ? kFailed : kOk;
}

}  // namespace

Work add_bridge(CLI::App& app, CLI::App*& command) {
  auto f = std::make_shared<Flags>();
  command = app.add_subcommand(
      "bridge", "Run an operation that JAX exported, through a plugin");
  const auto add = [&](const char* name, std::optional<std::string>& value,
                       const char* type, const char* text) {
    return command->add_option(name, value, text)->type_name(type);
  };
  add("artifact", f->artifact, "ARTIFACT",
      "StableHLO bytecode, as jax.export serializes it")
      ->required();
  add("--shapes", f->shapes, "FILE",
      "The JSON beside it: names, dtypes and shapes")
      ->required();
  add("--inputs", f->inputs, "FILE",
      ".safetensors with the inputs by name [random]");
  add("--seed", f->seed, "N", "Of random inputs and of a sampled check [0]");
  add("--outputs", f->outputs, "FILE", "Write a .safetensors file");
  add("--receipt", f->receipt, "FILE", "Write the receipt, a JSON object");
  add("--plugin", f->plugin, "NAME",
      "A PJRT plugin's file or known name [xla_cpu_pjrt]");
  add("--device", f->device, "N", "Of the plugin's devices [0]");
  add("--cache", f->cache, "FOLDER",
      "Keeps what is compiled; or off [TESSERA_CACHE, or the user's cache "
      "folder]");
  command->add_flag("--check", f->check,
                    "Compare attention with fp64, where the file of shapes "
                    "declares it");
  add("--trace", f->trace, "FILE", kTraceHelp);
  command->add_flag("--json", f->json, "The receipt alone, on stdout");
  command->footer(
      "Examples:\n"
      "  .venv/bin/python examples/export_jax.py attention out\n"
      "  tessera bridge out/attention.mlirbc --shapes out/attention.json \\\n"
      "      --inputs out/attention.in.safetensors --check\n"
      "\n"
      "What runs is JAX's program and not one of ours: the lane is jax_bridge "
      "in every\nreceipt, and its key is the whole artifact. docs/bridge.md "
      "describes the files.\nExit code 1 when the check fails.");
  return [f]() -> Result<int> {
    if (auto e = check_files(*f); !e) return e.error();
    return traced(f->trace, !f->json, [&] { return run(*f); });
  };
}

}  // namespace tessera::cli
