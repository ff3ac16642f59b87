// cli/compile_command.h: a program compiled ahead of time, as `tessera
// compile` shows it.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "pjrt/compile.h"

namespace tessera::cli {

// What a target and a plugin are chosen by; more than one command has these.
struct TargetFlags {
  std::string target;
  std::string plugin = "libtpu";
};

void add_target_flags(CLI::App& command, TargetFlags& flags);

struct CompileReport {
  std::string target, plugin, platform, device_kind;
  int64_t devices = 0;
  double compile_ms = 0;
  std::string name, fingerprint;  // the latter in hexadecimal
  int64_t outputs = 0;
  pjrt::MemoryStats memory;
  std::vector<pjrt::CostProperty> cost;
  std::string bytes;  // the serialized executable
};

// Loads the plugin, compiles `program` and asks for all of the above. What a
// plugin cannot tell besides memory stays empty.
Result<CompileReport> compile_program(const TargetFlags& flags,
                                      std::string_view program);

nlohmann::json compile_json(const CompileReport& report);
std::string compile_text(const CompileReport& report);

}  // namespace tessera::cli
