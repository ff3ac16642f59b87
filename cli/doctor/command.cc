// cli/doctor/command.cc: `tessera doctor`: what this machine and build have,
// what they lack, and what would add it.
#include "cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/json_read.h"
#include "base/text.h"
#include "lanes/lane.h"
#include "pjrt/locate.h"
#include "pjrt/plugin.h"
#include "receipt/machine.h"
#include "run/probe.h"
#include "tessera/dispatch.h"
#include "tessera/version.h"

namespace tessera::cli {
namespace {

struct Missing {
  std::string what, command;
};

struct Health {
  Machine machine;
  std::vector<PluginProbe> plugins;
  std::vector<Missing> missing;
};

std::string install_command(const pjrt::KnownPlugin& known) {
  return fmt::format("pip install {}", known.install);
}

// Where `make tpu` puts plugins; nobody's Python runs for lying in a folder.
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

Health examine() {
  Health out;
  out.machine = this_machine(false);
  if (!out.machine.loads_plugins) {
    out.missing.push_back({"this build loads no plugins", "make tpu && make"});
    return out;
  }
  out.machine.asked_plugins = true;
  out.machine.plugins.clear();
  for (const pjrt::KnownPlugin& known : pjrt::known_plugins()) {
    PluginProbe p = probe_plugin(std::string(known.name));
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

// What would have to be there, where a lane lacks it; else nothing.
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
  // Those that run it, or else those that compile it.
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

Json health_json(const Health& h) {
  Json isas = Json::array(), lanes = Json::object(), plugins = Json::array(),
       missing = Json::array();
  for (const Isa isa : h.machine.isas) isas.push_back(to_string(isa));
  for (const LaneFacts& lane : lane_registry()) {
    lanes[std::string(to_string(lane.lane))] = {{"about", lane.about},
                                                {"state", lane_state(lane, h)}};
  }
  const auto text = [](const std::string& s) {
    return is_utf8(s) ? s : in_quotes(s, s.size());
  };
  for (const PluginProbe& p : h.plugins) {
    Json devices = Json::array();
    for (const std::string& d : p.devices) devices.push_back(text(d));
    plugins.push_back({{"name", p.name},
                       {"found", !p.file.empty()},
                       {"file", text(p.file)},
                       {"api", p.api},
                       {"platform", text(p.platform)},
                       {"platform_version", text(p.platform_version)},
                       {"devices", devices},
                       {"why", text(p.why)}});
  }
  for (const Missing& m : h.missing) {
    missing.push_back({{"what", m.what}, {"command", m.command}});
  }
  return {{"tessera", kVersion},
          {"cpu", h.machine.cpu},
          {"threads", h.machine.threads},
          {"isas", isas},
          {"loads_plugins", h.machine.loads_plugins},
          {"lanes", lanes},
          {"plugins", plugins},
          {"missing", missing}};
}

std::string health_text(const Health& h) {
  std::string out;
  const auto line = [&](std::string_view name, const std::string& text) {
    out += fmt::format("{:<11} {}\n", name, text);
  };
  line("tessera", kVersion);
  std::string isas;
  for (const Isa isa : h.machine.isas) {
    isas += fmt::format("{}{}", isas.empty() ? "" : " ", to_string(isa));
  }
  line("cpu", fmt::format("{}, {} threads", h.machine.cpu, h.machine.threads));
  line("isas", isas);
  for (const LaneFacts& lane : lane_registry()) {
    line("lane",
         fmt::format("{:<11} {}", to_string(lane.lane), lane_state(lane, h)));
  }
  for (const PluginProbe& p : h.plugins) {
    if (p.api.empty()) {
      line("plugin", fmt::format("{:<20} {}", p.name,
                                 p.file.empty() ? "not found" : p.why));
      continue;
    }
    line("plugin",
         fmt::format(
             "{:<20} PJRT {}, {}{}", p.name, p.api,
             p.devices.empty()
                 ? p.why
                 : fmt::format("{} {}: {}", p.devices.size(),
                               p.devices.size() == 1 ? "device" : "devices",
                               fmt::join(p.devices, ", ")),
             p.file.empty() ? "" : " (" + in_quotes(p.file) + ")"));
  }
  for (const Missing& m : h.missing) {
    line("missing", fmt::format("{}: {}", m.what, m.command));
  }
  if (h.missing.empty()) line("missing", "nothing");
  return out;
}

}  // namespace

Command doctor_command() {
  auto json = std::make_shared<bool>(false);
  Command command{"doctor",
                  "Lanes, plugins, devices and ISAs here, and what is missing"};
  add_flags(command, {{"--json", json.get(), "", "One JSON object on stdout"}});
  command.footer =
      "Loads every plugin that it knows and finds (docs/pjrt.md). libtpu is "
      "asked for\ndevices only where there is a TPU.";
  command.work = [json]() -> Result<int> {
    const Health health = examine();
    if (*json) {
      fmt::print("{}\n", health_json(health).dump());
    } else {
      fmt::print("{}", health_text(health));
    }
    return kOk;
  };
  return command;
}

}  // namespace tessera::cli
