// run/lane_plugin.cc: picks the plugin of a lane, or says why there is none.
#include "run/lane_plugin.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"
#include "pjrt/locate.h"
#include "run/rules.h"
#include "tessera/layouts.h"

namespace tessera::run {
namespace {

bool unknown_generation(const LaneFacts& lane, const MachinePlugin& p) {
  return lane.known_chips && !p.generation.empty() &&
         !find_target(p.generation);
}

}  // namespace

bool is_exported_for(const LaneFacts& lane, const CallFeatures& call,
                     std::string_view platform) {
  return lane.same_meaning ||
         std::ranges::find(call.artifact_platforms, platform) !=
             call.artifact_platforms.end();
}

const MachinePlugin* plugin_for(const LaneFacts& lane, const Machine& m,
                                const CallFeatures& call) {
  const auto fits = [&](const MachinePlugin& p) {
    if (!lane.platform.empty() && p.platform != lane.platform) return false;
    if (!is_exported_for(lane, call, p.platform)) return false;
    if (!call.compile_only && unknown_generation(lane, p)) return false;
    // A CPU plugin makes as many devices as it is asked for.
    if (is_device(p) && p.devices < call.devices) return false;
    return p.devices > 0 || (call.compile_only && !lane.platform.empty());
  };
  // On a machine with a device, a mesh does not go to a CPU, even if there are
  // too few devices. A mesh of CPU devices prefers the default CPU plugin.
  const bool mesh = call.devices > 1;
  const std::string preferred = pjrt::default_cpu_plugin(call.devices);
  const MachinePlugin* other = nullptr;
  for (const bool device : {true, false}) {
    if (mesh && !device && !m.only_cpu()) break;
    for (const MachinePlugin& p : m.plugins) {
      if (!fits(p) || is_device(p) != device) continue;
      if (device || !mesh || p.name == preferred) return &p;
      if (!other) other = &p;
    }
  }
  return other;
}

std::string no_plugin(const LaneFacts& lane, const Machine& m,
                      const CallFeatures& call) {
  if (!m.loads_plugins) {
    return "this build loads no plugins: pjrt_c_api.h was not there (make tpu "
           "brings it)";
  }
  const std::string_view what = lane.platform.empty()
                                    ? "a PJRT plugin with a device"
                                : lane.platform == "tpu" ? "libtpu"
                                                         : "a CUDA plugin";
  if (!m.asked_plugins) return fmt::format("{} was not looked for", what);
  auto there = std::ranges::find_if(m.plugins, [&](const MachinePlugin& p) {
    return p.devices > 0 && (m.only_cpu() || is_device(p)) &&
           !is_exported_for(lane, call, p.platform);
  });
  if (there != m.plugins.end()) {
    const auto& of = call.artifact_platforms;
    return fmt::format(
        "its artifact is for {}, not {}",
        of.empty() ? "no platform" : fmt::format("{}", fmt::join(of, ", ")),
        there->platform);
  }
  there = std::ranges::find_if(m.plugins, [&](const MachinePlugin& p) {
    return is_device(p) && p.devices < call.devices &&
           (lane.platform.empty() || p.platform == lane.platform);
  });
  if (there != m.plugins.end()) {
    return fmt::format("{} has {} device{}, and the mesh {}", there->name,
                       there->devices, there->devices == 1 ? "" : "s",
                       call.devices);
  }
  there = std::ranges::find_if(m.plugins, [&](const MachinePlugin& p) {
    return p.platform == lane.platform && p.devices > 0;
  });
  if (there != m.plugins.end()) {
    return fmt::format("its kernels are of {}, and {} has a {}", chip_names(),
                       there->name, in_quotes(there->generation, 40));
  }
  there = std::ranges::find(m.plugins, lane.platform, &MachinePlugin::platform);
  if (there != m.plugins.end()) {
    return fmt::format("{} has no device here: it compiles and does not run",
                       there->name);
  }
  return fmt::format("it needs {}, which was not found{}", what,
                     lane.platform == "cuda" ? "" : " (make tpu brings one)");
}

}  // namespace tessera::run
