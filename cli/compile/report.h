// cli/compile/report.h: a program compiled ahead of time, as `tessera
// compile` shows it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "pjrt/compile.h"

namespace tessera::cli {

struct CompileTarget {
  std::string target;  // "v6e:1x1"
  std::string plugin = "libtpu";
};

struct CompileReport {
  std::string target, plugin, platform, device_kind;
  std::string api;  // "0.116"
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
Result<CompileReport> compile_program(const CompileTarget& target,
                                      std::string_view program);

nlohmann::json compile_json(const CompileReport& report);
std::string compile_text(const CompileReport& report);

}  // namespace tessera::cli
