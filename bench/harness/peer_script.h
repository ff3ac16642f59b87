// bench/harness/peer_script.h: a peer's script: found, run, and what it prints.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/machine.h"

namespace tessera::bench {

// A file of `folder`, run by the interpreter that an environment variable
// names.
struct ScriptFile {
  std::string folder, file, variable;
};

// Why it cannot be run; "" where it can.
std::string why_no_script(const ScriptFile& script);

struct ScriptRun {
  std::string out;  // what it printed
  std::string why;  // it did not come to a good end; "" where it did
  double seconds = 0;
};
ScriptRun run_script(
    const ScriptFile& script, const std::vector<std::string>& arguments,
    const std::vector<std::pair<std::string, std::string>>& environment,
    double limit_seconds);

// What holds a script to our threads and to instructions no wider than ours.
std::vector<std::pair<std::string, std::string>> peer_environment(Isa isa,
                                                                  int threads);

// The lines that are JSON objects.
std::vector<nlohmann::json> script_lines(std::string_view text);

// A field that is there and of this type; else `into` stays.
void read_field(const nlohmann::json& line, const char* key, int64_t& into);
void read_field(const nlohmann::json& line, const char* key, double& into);
void read_field(const nlohmann::json& line, const char* key, std::string& into);

}  // namespace tessera::bench
