// cli/compile/report.h: compiles a program ahead of time, and reports the
// result as `tessera compile` shows it.
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
  std::string name, fingerprint;  // the fingerprint is in hexadecimal
  int64_t outputs = 0;
  pjrt::MemoryStats memory;
  std::vector<pjrt::CostProperty> cost;
  std::string bytes;  // the serialized executable
};

// Loads the plugin, compiles `program` and fills the report. A field that the
// plugin does not provide stays empty; missing memory statistics are an error.
Result<CompileReport> compile_program(const CompileTarget& target,
                                      std::string_view program);

nlohmann::json compile_json(const CompileReport& report);
std::string compile_text(const CompileReport& report);

}  // namespace tessera::cli
