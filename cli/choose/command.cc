// cli/choose/command.cc: `tessera choose`: which lane would run a request, and
// why each other lane would not.
#include "cli/command.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "cli/choose/machine_file.h"
#include "cli/choose/report.h"
#include "cli/json_line.h"
#include "cli/route/planned.h"
#include "cli/route/routed_batch.h"
#include "cli/run/options.h"
#include "cli/run/run.h"
#include "run/features.h"
#include "run/kernel_tile.h"
#include "run/passes.h"
#include "run/reason_needed.h"

namespace tessera::cli {
namespace {

struct Options {
  RunFlags run;
  std::optional<std::string> lane, machine;
  bool compile_only = false;
  bool json = false;
};

Result<Machine> machine_for(const Options& o) {
  if (!o.machine) return this_machine(true);
  auto text = read_file(*o.machine, kMaxMachineBytes);
  if (!text) return text.error();
  return in_file(parse_machine(*text), *o.machine);
}

Result<int> run(const Options& o) {
  auto options = read_run_options(o.run);
  if (!options) return options.error();
  std::optional<LaneId> forced;
  if (o.lane && *o.lane != "auto") {
    auto lane = parse_lane(*o.lane);
    if (!lane) return lane.error();
    forced = *lane;
    if (o.run.gate) {
      return invalid("cli", "--gate goes with --lane auto, found --lane {}",
                     to_string(*lane));
    }
  }
  auto machine = machine_for(o);
  if (!machine) return machine.error();
  auto loaded = load_request(o.run.request);
  if (!loaded) return loaded.error();
  const bool open_tile = run::is_tile_open(*loaded);
  if (auto e = take_picks({}, *loaded); !e) return e.error();
  auto planned = plan_loaded(std::move(*loaded));
  if (!planned) return planned.error();
  OwnedBatch& batch = planned->batch;
  const request::AttentionData& data = options->data;
  auto counted =
      run::check_first_keys(data.first_keys, batch, data.shape.heads);
  if (!counted) return counted.error();
  const AttentionCall asked = call_of(*options);
  CallFeatures call = run::call_features(asked, options->lanes);
  call.compile_only = o.compile_only;
  const run::LaneChooser chooser = {
      [&](const Batch& of) {
        return choose(features_of(of.request(), of.facts(), data.shape, call),
                      plan_facts(of.plan()), *machine, options->lanes.gate,
                      forced);
      },
      [&](const Choice& of) { return run::target_of(*machine, of.plugin); },
      options->lanes.xla};
  auto tiled = run::choose_and_tile(chooser, asked, open_tile, batch);
  if (!tiled) return tiled.error();
  const Choice& choice = tiled->choice;
  const ChoiceOf of = {plan_facts(batch.plan()), batch.request().tile,
                       tiled->tile_by,
                       run::reason_needed(choice, batch.request(), *machine)};
  if (o.json) {
    fmt::print("{}\n", json_line(choice_json(choice, of, *machine)));
  } else {
    fmt::print("{}", choice_text(choice, of, *machine));
  }
  return kOk;
}

}  // namespace

Command choose_command() {
  auto o = std::make_shared<Options>();
  Command command{"choose",
                  "Which lane would run a request, and why none of the others"};
  add_shape_flags(command, o->run, "f32, bf16 or f16 [f32]");
  add_flags(
      command,
      {
          {"--lane", &o->lane, "NAME", "Ask about one lane [auto]"},
          {"--gate", &o->run.gate, "FILE",
           "A table of `tessera gate`, measured or predicted, which goes "
           "before the rules"},
          {"--machine", &o->machine, "FILE",
           "A machine as a JSON object: cpu, threads, isas, plugins (each "
           "name, platform, devices, of a TPU the generation: v6e) "
           "[this one]"},
          {"--artifact", &o->run.artifact, "FILE",
           "Program that JAX exported for this request: attention or Splash's "
           "kernel"},
          {"--shapes", &o->run.shapes, "FILE", "The JSON beside the artifact"},
          {"--sink-telemetry", &o->run.sink_telemetry, "N",
           "Choose for a run that tells the mass on the first N keys [off]"},
          {"--compile-only", &o->compile_only, "",
           "Choose what compiles the request ahead of time; nothing is to run"},
          {"--json", &o->json, "", "One JSON object on stdout"},
      });
  command.footer =
      "Example:\n"
      "  tessera choose --mask 'causal & documents' --q-len 8192 \\\n"
      "      --docs lognormal --dtype bf16\n"
      "\n"
      "docs/dispatch.md has the rules.";
  command.json_fields = choice_json_fields();
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
