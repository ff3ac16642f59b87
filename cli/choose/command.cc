// cli/choose/command.cc: `tessera choose`: which lane would run a request, and
// why none of the others.
#include "cli/command.h"

#include <fmt/format.h>

#include <memory>

#include "base/fail.h"
#include "base/files.h"
#include "cli/choose/machine_file.h"
#include "cli/choose/report.h"
#include "cli/json_line.h"
#include "cli/route/planned.h"
#include "cli/run/options.h"
#include "cli/run/run.h"
#include "run/features.h"
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
  return parse_machine(*text);
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
  auto planned = load_planned(o.run.request);
  if (!planned) return planned.error();
  const AttentionData& data = options->data;
  auto counted =
      run::check_first_keys(data.first_keys, planned->batch, data.shape.heads);
  if (!counted) return counted.error();
  CallFeatures call = run::call_features(call_of(*options), options->lanes);
  call.compile_only = o.compile_only;
  const RequestFeatures features = features_of(
      planned->batch.request(), planned->batch.facts(), data.shape, call);
  const PlanFacts plan = plan_facts(planned->batch.plan());
  auto choice = choose(features, plan, *machine, options->lanes.gate, forced);
  if (!choice) return choice.error();
  const auto needs =
      run::reason_needed(*choice, planned->batch.request(), *machine);
  if (o.json) {
    fmt::print("{}\n", json_line(choice_json(*choice, plan, *machine, needs)));
  } else {
    fmt::print("{}", choice_text(*choice, plan, *machine, needs));
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
          {"--lane", &o->lane, "NAME", "Asks about one lane [auto]"},
          {"--gate", &o->run.gate, "FILE",
           "A table of `tessera gate`, measured or predicted: goes before "
           "the rules"},
          {"--machine", &o->machine, "FILE",
           "A machine as a JSON object: cpu, threads, isas, plugins (each "
           "name, platform, devices, of a TPU the generation: v6e) "
           "[this one]"},
          {"--artifact", &o->run.artifact, "FILE",
           "What JAX exported for this request: attention or Splash's kernel"},
          {"--shapes", &o->run.shapes, "FILE", "The JSON beside the artifact"},
          {"--sink-telemetry", &o->run.sink_telemetry, "N",
           "`tessera run` is to tell the mass on the first N keys [off]"},
          {"--compile-only", &o->compile_only, "",
           "Nothing is to run: what compiles it ahead of time"},
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
