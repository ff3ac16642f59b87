// cli/choose/machine_file.cc: a machine as a JSON file.
#include "cli/choose/machine_file.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/json_read.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/numbers.h"
#include "plan/generation.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kWhere = "machine";
constexpr size_t kMaxPlugins = 64;

Result<MachinePlugin> parse_plugin(const Json& j) {
  auto fields = check_fields(j, kWhere, "a plugin",
                             {"name", "platform", "devices"}, {"generation"});
  if (!fields) return fields.error();
  auto name = read_line(j["name"], kWhere, "name");
  if (!name) return name.error();
  auto platform = read_line(j["platform"], kWhere, "platform");
  if (!platform) return platform.error();
  auto devices = read_int(j["devices"], kWhere, "devices", 0, kMaxDevices);
  if (!devices) return devices.error();
  MachinePlugin out{*name, *platform, *devices};
  if (!j.contains("generation")) return out;
  auto generation = read_line(j["generation"], kWhere, "generation");
  if (!generation) return generation.error();
  if (*platform != "tpu") {
    return invalid(kWhere, "generation must be of a tpu, found it with {}",
                   in_quotes(*platform));
  }
  auto known = plan::check_generation(kWhere, *generation);
  if (!known) return known.error();
  out.generation = std::move(*generation);
  return out;
}

Result<void> check_list(const Json& j, std::string_view name) {
  if (j.is_array() && j.size() <= kMaxPlugins) return {};
  return invalid(kWhere, "{} must be an array of at most {}, found {}", name,
                 kMaxPlugins, describe(j));
}

}  // namespace

Result<Machine> parse_machine(std::string_view text) {
  const auto parsed = parse_json(text, kWhere);
  if (!parsed) return parsed.error();
  const Json& j = **parsed;
  auto fields = check_fields(j, kWhere, "a machine",
                             {"cpu", "threads", "isas", "plugins"});
  if (!fields) return fields.error();
  Machine out;
  auto cpu = read_line(j["cpu"], kWhere, "cpu");
  if (!cpu) return cpu.error();
  out.cpu = *cpu;
  auto threads = read_int(j["threads"], kWhere, "threads", 1, kMaxThreads);
  if (!threads) return threads.error();
  out.threads = static_cast<int>(*threads);
  for (const char* name : {"isas", "plugins"}) {
    if (auto e = check_list(j[name], name); !e) return e.error();
  }
  for (const Json& word : j["isas"]) {
    auto text_of = read_string(word, kWhere, "an ISA");
    if (!text_of) return text_of.error();
    auto isa = parse_isa(*text_of);
    if (!isa) return isa.error();
    out.isas.push_back(*isa);
  }
  std::sort(out.isas.begin(), out.isas.end());
  for (const Json& p : j["plugins"]) {
    auto plugin = parse_plugin(p);
    if (!plugin) return plugin.error();
    out.plugins.push_back(std::move(*plugin));
  }
  return out;
}

}  // namespace tessera::cli
