// cli/doctor/command.cc: `tessera doctor`: what this machine and build have,
// what they lack, and what would add it.
#include "cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "base/json_read.h"
#include "base/text.h"
#include "cli/doctor/health.h"
#include "cli/json_line.h"
#include "tessera/version.h"

namespace tessera::cli {
namespace {

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
  for (const run::PluginProbe& p : h.plugins) {
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
  for (const run::PluginProbe& p : h.plugins) {
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

constexpr JsonField kJsonFields[] = {
    {"tessera", "the version"},
    {"cpu, threads, isas"},
    {"loads_plugins", "whether this build loads plugins"},
    {"lanes.LANE.{about,state}"},
    {"plugins[].{name,found,file,api,platform,platform_version,devices,why}",
     "api: PJRT's version; why: what keeps it from devices"},
    {"missing[].{what,command}", "command: adds what is missing"},
};

}  // namespace

Command doctor_command() {
  auto json = std::make_shared<bool>(false);
  Command command{"doctor",
                  "Lanes, plugins, devices and ISAs here, and what is missing"};
  add_flags(command, {{"--json", json.get(), "", "One JSON object on stdout"}});
  command.footer =
      "Loads every plugin that it knows and finds (docs/pjrt.md). libtpu is "
      "asked for\ndevices only where there is a TPU.";
  command.json_fields = kJsonFields;
  command.work = [json]() -> Result<int> {
    const Health health = examine_health();
    if (*json) {
      fmt::print("{}\n", json_line(health_json(health)));
    } else {
      fmt::print("{}", health_text(health));
    }
    return kOk;
  };
  return command;
}

}  // namespace tessera::cli
