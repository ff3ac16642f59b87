// run/machine.cc: looks at this machine: its ISAs, and the plugins with
// their devices.
#include "receipt/machine.h"

#include <string_view>

#include "base/threads.h"
#include "pjrt/client.h"
#include "pjrt/locate.h"
#include "pjrt/tpu_here.h"
#include "run/probe.h"
#include "tessera/dispatch.h"
#include "tessera/machine.h"

namespace tessera {
namespace {

// The generation of all devices; empty if they differ or one is not known.
std::string generation_of(const pjrt::Client& client) {
  std::string out;
  for (const pjrt::Device& d : client.devices()) {
    const auto chip = chip_of_device(d.kind);
    if (!chip || (!out.empty() && chip->name != out)) return {};
    out = chip->name;
  }
  return out;
}

bool starts_here(std::string_view name) {
  return name != "libtpu" || pjrt::is_tpu_here();
}

}  // namespace

run::PluginProbe run::probe_plugin(const std::string& name) {
  run::PluginProbe out;
  out.name = name;
  if (name == "libtpu") out.platform = "tpu";
  const auto file = pjrt::find_plugin(name);
  if (!file) {
    out.why = file.error().message;
    return out;
  }
  out.file = *file;
  const auto plugin = pjrt::open_plugin({name, {}});
  if (!plugin) {
    out.why = plugin.error().message;
    return out;
  }
  out.file = (*plugin)->path();
  out.api = "0." + std::to_string((*plugin)->minor_version());
  if (!starts_here(name)) {
    out.why = "this machine has no TPU: it compiles and does not run";
    return out;
  }
  const auto client = pjrt::open_client(**plugin);
  if (!client) {
    out.why = client.error().message;
    return out;
  }
  out.platform = (*client)->platform();
  out.platform_version = (*client)->platform_version();
  for (const pjrt::Device& d : (*client)->devices()) {
    out.devices.push_back(pjrt::describe(d));
  }
  if (out.platform == "tpu") out.generation = generation_of(**client);
  return out;
}

Machine this_machine(bool plugins) {
  Machine out;
  out.cpu = receipt::cpu_model();
  out.threads = machine_threads();
  out.isas = machine_isas();
  out.loads_plugins = pjrt::check_available().ok();
  out.asked_plugins = plugins;
  if (!out.loads_plugins) return out;
  for (const pjrt::KnownPlugin& known : pjrt::known_plugins()) {
    const bool device = known.name == "libtpu" && pjrt::is_tpu_here();
    if (!plugins && !device) continue;
    const run::PluginProbe p = run::probe_plugin(std::string(known.name));
    if (p.api.empty()) continue;
    out.plugins.push_back({p.name, p.platform,
                           static_cast<int64_t>(p.devices.size()),
                           p.generation});
  }
  return out;
}

}  // namespace tessera
