// cli/doctor/health.cc: examines the machine and each plugin.
#include "cli/doctor/health.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "lanes/lane.h"
#include "pjrt/locate.h"

namespace tessera::cli {
namespace {

std::string install_command(const pjrt::KnownPlugin& known) {
  return fmt::format("pip install {}", known.install);
}

// The Python of the folder where `make tpu` installs plugins. It is only named
// in advice: a Python that merely lies in a folder is never run.
constexpr const char* kPython = ".venv/bin/python";

bool is_python_unnamed() {
  const auto is_set = [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value;
  };
  std::error_code unknown;
  return !is_set("TESSERA_PYTHON") && !is_set("VIRTUAL_ENV") &&
         std::filesystem::exists(kPython, unknown);
}

}  // namespace

Health examine_health() {
  Health out;
  out.machine = this_machine(false);
  if (!out.machine.loads_plugins) {
    out.missing.push_back({"this build loads no plugins", "make tpu && make"});
    return out;
  }
  out.machine.asked_plugins = true;
  out.machine.plugins.clear();
  for (const pjrt::KnownPlugin& known : pjrt::known_plugins()) {
    run::PluginProbe p = run::probe_plugin(std::string(known.name));
    if (p.file.empty()) {
      out.missing.push_back(
          {fmt::format("the plugin {}", known.name), install_command(known)});
    }
    if (!p.api.empty()) {
      out.machine.plugins.push_back(
          {p.name, p.platform, static_cast<int64_t>(p.devices.size())});
    }
    out.plugins.push_back(std::move(p));
  }
  if (!out.missing.empty() && is_python_unnamed()) {
    out.missing.insert(out.missing.begin(),
                       {"plugins are looked for with the Python of PATH, and "
                        "there is a .venv here",
                        fmt::format("export TESSERA_PYTHON={}", kPython)});
  }
  return out;
}

std::string lane_state(const LaneFacts& lane, const Health& h) {
  if (!lane.absent.empty()) return std::string(lane.absent);
  const bool own = !lane.needs_plugin;
  if (lane.lane == LaneId::cpu) {
    return fmt::format(
        "runs, up to {}",
        h.machine.isas.empty() ? "nothing" : to_string(h.machine.isas.back()));
  }
  if (own) return "runs where it is asked for";
  if (!h.machine.loads_plugins) return "this build loads no plugins";
  // Plugins that run the lane; if there are none, plugins that compile for it.
  std::string with, compiles;
  for (const MachinePlugin& p : h.machine.plugins) {
    if (!lane.platform.empty() && p.platform != lane.platform) continue;
    std::string& names = p.devices > 0 ? with : compiles;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", p.name);
  }
  if (with.empty() && !compiles.empty() && !lane.platform.empty()) {
    return fmt::format("compiles only with {}, which has no device here",
                       compiles);
  }
  if (with.empty()) {
    return fmt::format("needs {}", lane.platform == "tpu"
                                       ? "libtpu"
                                       : "a plugin with a device");
  }
  return fmt::format("runs with {}", with);
}

}  // namespace tessera::cli
