// cli/receipt/second_run.cc: runs the command of a receipt again.
#include "cli/receipt/second_run.h"

#include <utility>

#include "base/fail.h"
#include "cli/bridge/run.h"
#include "cli/compile/receipt.h"
#include "cli/receipt/flags.h"
#include "cli/run/run.h"
#include "cli/train/run.h"
#include "run/receipt_parts.h"
#include "run/repeat.h"

namespace tessera::cli {
namespace {

constexpr const char* kNoCache = "off";  // so that the compiler runs again

// Sets the plugin in the flags of a bridge or training run.
Result<void> add_plugin(const receipt::Receipt& r,
                        const std::optional<std::string>& plugin,
                        PluginFlags& out) {
  if (!r.plugin) return {};
  auto file = run::plugin_to_load(r, plugin);
  if (!file) return file.error();
  out.plugin = std::move(*file);
  out.device = fmt::to_string(r.plugin->number);
  out.cache = kNoCache;
  return {};
}

// Sets the artifact in the flags of a run or a bridge run.
template <class Flags>
Result<void> add_artifact(const receipt::Receipt& r, Flags& out) {
  if (!r.artifact) return {};
  if (r.artifact->file.empty() || r.artifact->shapes_file.empty()) {
    return unavailable("receipt",
                       "a receipt's artifact and shapes must be in files for "
                       "it to run again, found none");
  }
  out.artifact = r.artifact->file;
  out.shapes = r.artifact->shapes_file;
  return {};
}

// Takes request and arrays from flags, and the lane's options from
// run::options_to_repeat().
Result<run::SecondRun> run_plan(const receipt::Receipt& claimed,
                                const std::optional<std::string>& plugin) {
  auto flags = flags_of(claimed);
  if (!flags) return flags.error();
  if (auto e = add_artifact(claimed, *flags); !e) return e.error();
  flags->cache = kNoCache;
  auto options = read_run_options(*flags);
  if (!options) return options.error();
  auto lanes =
      run::options_to_repeat(claimed, std::move(options->lanes), plugin);
  if (!lanes) return lanes.error();
  options->lanes = std::move(*lanes);
  auto run = run_request(*flags, std::move(*options));
  if (!run) return run.error();
  receipt::seal(run->receipt);
  return run::SecondRun{std::move(run->receipt),
                        run::SecondRun::Asked{run->features, run->plan}};
}

Result<run::SecondRun> run_operation(const receipt::Receipt& claimed,
                                     const std::optional<std::string>& plugin) {
  const receipt::Receipt::Inputs& inputs = claimed.inputs;
  if (inputs.file.empty() && inputs.drawn.empty() && !inputs.arrays.empty()) {
    return no_arrays();
  }
  BridgeFlags flags;
  if (auto e = add_plugin(claimed, plugin, flags); !e) return e.error();
  if (auto e = add_artifact(claimed, flags); !e) return e.error();
  if (inputs.file.empty()) {
    flags.seed = fmt::to_string(inputs.seed);
  } else {
    flags.inputs = inputs.file;
  }
  flags.check = claimed.check.kind != "none";
  auto outcome = run_bridge(flags);
  if (!outcome) return outcome.error();
  return run::SecondRun{std::move(outcome->receipt), {}};
}

Result<run::SecondRun> train(const receipt::Receipt& claimed,
                             const std::optional<std::string>& plugin) {
  PluginFlags flags;
  if (auto e = add_plugin(claimed, plugin, flags); !e) return e.error();
  auto found = train_again(claimed, flags);
  if (!found) return found.error();
  return run::SecondRun{std::move(*found), {}};
}

// Makes a kernel that was only compiled again, which needs no plugin.
Result<run::SecondRun> make_kernel(const receipt::Receipt& claimed) {
  auto kernel = kernel_flags_of(claimed);
  if (!kernel) return kernel.error();
  const auto& target = claimed.request.target;
  if (!claimed.plugin || !target) {
    return invalid("receipt",
                   "a receipt of a compiled kernel must have a plugin and a "
                   "target, found no {}",
                   claimed.plugin ? "target" : "plugin");
  }
  run::CompiledBy by;
  by.target = *target;
  kernel->run.request.target = target;
  by.machine = run::machine_of(claimed);
  // The plugin's file and versions are copied from the receipt, unchecked.
  by.plugin = {claimed.plugin->file,
               claimed.plugin->api,
               "tpu",
               claimed.plugin->platform_version,
               *target,
               0};
  auto asked = make_asked_kernel(*kernel, by.target);
  if (!asked) return asked.error();
  auto receipt = compile_receipt(*kernel, *asked, by);
  if (!receipt) return receipt.error();
  return run::SecondRun{std::move(*receipt), {}};
}

}  // namespace

Result<run::SecondRun> second_run(const receipt::Receipt& claimed,
                                  const std::optional<std::string>& plugin) {
  if (claimed.kind == receipt::Kind::training) return train(claimed, plugin);
  if (!claimed.of_plan()) return run_operation(claimed, plugin);
  return claimed.ran() ? run_plan(claimed, plugin) : make_kernel(claimed);
}

}  // namespace tessera::cli
