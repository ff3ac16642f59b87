// bench/harness/peer_script.cc: runs a peer's script and reads what it prints.
#include "bench/harness/peer_script.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "base/child.h"
#include "base/text.h"
#include "request/numbers.h"

namespace tessera::bench {

using request::split;
using request::trim;

namespace {

using nlohmann::json;

std::string path_of(const ScriptFile& s) {
  return (std::filesystem::path(s.folder) / s.file).string();
}

std::string last_line(std::string_view text) {
  const std::string_view said = trim(text);
  if (said.empty()) return "nothing said";
  return std::string(said.substr(said.rfind('\n') + 1));
}

}  // namespace

std::string why_no_script(const ScriptFile& s) {
  const char* interpreter = std::getenv(s.variable.c_str());
  if (!interpreter || !*interpreter) return s.variable + " is not set";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path_of(s), ignored)) {
    return "there is no " + in_quotes(path_of(s));
  }
  return "";
}

ScriptRun run_script(
    const ScriptFile& s, const std::vector<std::string>& arguments,
    const std::vector<std::pair<std::string, std::string>>& environment,
    double limit_seconds) {
  ScriptRun run;
  run.why = why_no_script(s);
  if (!run.why.empty()) return run;
  std::vector<std::string> command = {std::getenv(s.variable.c_str()),
                                      path_of(s)};
  command.insert(command.end(), arguments.begin(), arguments.end());
  auto all = environment;
  all.emplace_back("PYTHONDONTWRITEBYTECODE", "1");
  auto child = run_child(command, all, limit_seconds);
  if (!child) {
    run.why = child.error().message;
    return run;
  }
  run.out = std::move(child->out);
  run.seconds = child->seconds;
  if (child->timed_out) {
    run.why = fmt::format("killed after {:.0f} s", child->seconds);
  } else if (child->exit_code != 0) {
    run.why = fmt::format("exit {}: {}", child->exit_code,
                          in_quotes(last_line(child->err)));
  }
  return run;
}

std::vector<std::pair<std::string, std::string>> peer_environment(Isa isa,
                                                                  int threads) {
  std::string onednn = "AVX512_CORE_BF16";
  std::string aten = "avx512";
  if (isa == Isa::avx512) onednn = "AVX512_CORE";
  if (isa == Isa::avx2) onednn = "AVX2";
  if (isa == Isa::portable) onednn = "SSE41";
  if (isa == Isa::avx2) aten = "avx2";
  if (isa == Isa::portable) aten = "default";
  return {{"ONEDNN_MAX_CPU_ISA", onednn},
          {"ATEN_CPU_CAPABILITY", aten},
          {"OMP_NUM_THREADS", std::to_string(threads)},
          {"TORCHINDUCTOR_COMPILE_THREADS", "1"}};
}

std::vector<json> script_lines(std::string_view text) {
  std::vector<json> out;
  for (const std::string_view row : split(text, '\n')) {
    json line = json::parse(row, nullptr, /*allow_exceptions=*/false);
    if (line.is_object()) out.push_back(std::move(line));
  }
  return out;
}

void read_field(const json& line, const char* key, int64_t& into) {
  const auto at = line.find(key);
  if (at != line.end() && at->is_number_integer()) into = at->get<int64_t>();
}

void read_field(const json& line, const char* key, double& into) {
  const auto at = line.find(key);
  if (at != line.end() && at->is_number()) into = at->get<double>();
}

void read_field(const json& line, const char* key, std::string& into) {
  const auto at = line.find(key);
  if (at != line.end() && at->is_string()) into = at->get<std::string>();
}

}  // namespace tessera::bench
