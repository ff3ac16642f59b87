// cli/compile/report.cc: compiles a program and reports the result.
#include "cli/compile/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "pjrt/compile_for.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

std::string hexadecimal(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return out;
}

json cost_json(const std::vector<pjrt::CostProperty>& cost) {
  json out = json::object();
  for (const pjrt::CostProperty& property : cost) {
    std::visit([&](const auto& value) { out[property.name] = value; },
               property.value);
  }
  return out;
}

}  // namespace

Result<CompileReport> compile_program(const CompileTarget& target,
                                      std::string_view program) {
  auto made = pjrt::compile_for({target.plugin, {}}, target.target, program);
  if (!made) return made.error();
  const pjrt::Executable& executable = made->executable;
  CompileReport out;
  out.compile_ms = made->compile_ms;
  out.target = target.target;
  out.plugin = made->plugin->path();
  out.api = fmt::format("0.{}", made->plugin->minor_version());
  out.platform = made->topology.platform();
  out.devices = static_cast<int64_t>(made->topology.devices().size());
  if (out.devices > 0) out.device_kind = made->topology.devices()[0].kind;
  auto memory = executable.memory();
  if (!memory) return memory.error();
  out.memory = *memory;
  auto bytes = executable.serialize();
  if (!bytes) return bytes.error();
  out.bytes = std::move(*bytes);
  if (auto name = executable.name()) out.name = std::move(*name);
  if (auto print = executable.fingerprint()) {
    out.fingerprint = hexadecimal(*print);
  }
  if (auto outputs = executable.outputs()) out.outputs = *outputs;
  if (auto cost = executable.cost()) out.cost = std::move(*cost);
  return out;
}

json compile_json(const CompileReport& r) {
  json out = {
      {"target", r.target},
      {"plugin", r.plugin},
      {"platform", r.platform},
      {"devices", {{"count", r.devices}, {"kind", r.device_kind}}},
      {"name", r.name},
      {"fingerprint", r.fingerprint},
      {"outputs", r.outputs},
      {"bytes",
       {{"code", r.memory.code},
        {"argument", r.memory.argument},
        {"output", r.memory.output},
        {"alias", r.memory.alias},
        {"temporary", r.memory.temporary},
        {"serialized", r.bytes.size()}}},
      {"cost", cost_json(r.cost)},
      {"compile_ms", r.compile_ms},
  };
  out["bytes"]["peak"] = r.memory.peak ? json(*r.memory.peak) : json();
  return out;
}

std::string compile_text(const CompileReport& r) {
  std::string out =
      fmt::format("{:<11} {} for {} ({} x {}), {:.0f} ms\n", "compiled",
                  r.name.empty() ? "it" : r.name, r.target, r.devices,
                  r.device_kind, r.compile_ms);
  const auto line = [&](std::string_view name, int64_t bytes) {
    out += fmt::format("{:<11} {:>14} bytes\n", name, bytes);
  };
  line("code", r.memory.code);
  line("arguments", r.memory.argument);
  line("outputs", r.memory.output);
  line("aliased", r.memory.alias);
  line("temporary", r.memory.temporary);
  if (r.memory.peak) line("peak", *r.memory.peak);
  return out;
}

}  // namespace tessera::cli
