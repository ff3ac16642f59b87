// bench/harness/peer_script.h: runs a peer's script and reads what it prints.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/machine.h"

namespace tessera::bench {

// A script in `folder`. The environment variable names its interpreter.
struct ScriptFile {
  std::string folder, file, variable;
};

// Why the script cannot be run; "" if it can.
std::string why_no_script(const ScriptFile& script);

struct ScriptRun {
  std::string out;  // what it printed
  std::string why;  // the reason of a failure; "" if it succeeded
  double seconds = 0;
};
ScriptRun run_script(
    const ScriptFile& script, const std::vector<std::string>& arguments,
    const std::vector<std::pair<std::string, std::string>>& environment,
    double limit_seconds);

// Variables that limit a script to our number of threads and to instructions no
// wider than ours.
std::vector<std::pair<std::string, std::string>> peer_environment(Isa isa,
                                                                  int threads);

// The lines of `text` that are JSON objects.
std::vector<nlohmann::json> script_lines(std::string_view text);

// Reads a field; if it is absent or of another type, `into` keeps its value.
void read_field(const nlohmann::json& line, const char* key, int64_t& into);
void read_field(const nlohmann::json& line, const char* key, double& into);
void read_field(const nlohmann::json& line, const char* key, std::string& into);

}  // namespace tessera::bench
