// cli/bench_peers.cc: one script after the other, each within its time.
#include "cli/bench_peers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/child.h"
#include "base/text.h"
#include "cli/machine.h"
#include "cli/numbers.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

constexpr PeerScript kScripts[] = {
    {"torch", "attention_torch.py", "TESSERA_TORCH_PYTHON"},
    {"flex", "attention_flex.py", "TESSERA_TORCH_PYTHON"},
    {"onnxruntime", "attention_ort.py", "TESSERA_ORT_PYTHON"},
    {"openvino", "attention_openvino.py", "TESSERA_ORT_PYTHON"},
};

std::string text_of(const json& line, const char* key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_string() ? at->get<std::string>() : "";
}

double number_of(const json& line, const char* key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_number() ? at->get<double>() : 0;
}

std::string last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
    text.remove_suffix(1);
  }
  return std::string(text.substr(text.rfind('\n') + 1));
}

}  // namespace

std::span<const PeerScript> peer_scripts() { return kScripts; }

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
          {"TORCHINDUCTOR_COMPILE_THREADS", "1"},
          {"PYTHONDONTWRITEBYTECODE", "1"}};
}

std::vector<PeerLine> parse_peer_lines(std::string_view text, json& versions) {
  std::vector<PeerLine> out;
  for (const std::string_view row : split(text, '\n')) {
    const json line = json::parse(row, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) continue;
    if (line.contains("versions")) versions = line["versions"];
    PeerLine p;
    p.times.peer = text_of(line, "peer");
    p.name = text_of(line, "case");
    p.dtype = text_of(line, "dtype");
    p.direction = text_of(line, "direction");
    if (p.times.peer.empty() || p.name.empty()) continue;
    p.pairs = static_cast<int64_t>(number_of(line, "pairs"));
    p.times.error = number_of(line, "error");
    p.times.why = text_of(line, "why");
    const RunTimes times = {number_of(line, "ms"), number_of(line, "median_ms"),
                            static_cast<int64_t>(number_of(line, "runs"))};
    if (times.best_ms > 0) {
      p.times.times = times;
    } else if (p.times.why.empty()) {
      p.times.why = "its line has no time";
    }
    out.push_back(std::move(p));
  }
  return out;
}

PeerRun run_peer(const PeerScript& script, const PeerRequest& request) {
  PeerRun run;
  run.script = script.name;
  const std::string variable(script.variable);
  const char* interpreter = std::getenv(variable.c_str());
  if (!interpreter || !*interpreter) {
    run.why = variable + " is not set";
    return run;
  }
  const std::filesystem::path file =
      std::filesystem::path(request.folder) / script.file;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) {
    run.why = "there is no " + in_quotes(file.string());
    return run;
  }
  std::vector<std::string> command = {
      interpreter,  file.string(),
      "--docs",     request.docs,
      "--tokens",   std::to_string(request.tokens),
      "--head-dim", std::to_string(request.head_dim),
      "--dtype",    std::string(dtype_word(request.dtype)),
      "--threads",  std::to_string(request.threads),
      "--cases",    fmt::format("{}", fmt::join(request.cases, ",")),
      "--seconds",  fmt::format("{}", request.seconds),
      "--budget",   fmt::format("{}", request.limit * 0.8)};
  if (request.backward) command.emplace_back("--backward");
  const OtherCores others;
  auto child = run_child(
      command, peer_environment(request.isa, request.threads), request.limit);
  run.other_cores = others.so_far();
  if (!child) {
    run.why = child.error().message;
    return run;
  }
  run.seconds = child->seconds;
  run.lines = parse_peer_lines(child->out, run.versions);
  if (child->timed_out) {
    run.why = fmt::format("killed after {:.0f} s", child->seconds);
  } else if (child->exit_code != 0) {
    const std::string said = last_line(child->err);
    run.why = fmt::format("exit {}: {}", child->exit_code,
                          in_quotes(said.empty() ? "nothing said" : said));
  }
  return run;
}

void join_peers(const PeerRun& run, std::span<BenchRow> rows) {
  for (BenchRow& row : rows) {
    row.every_peer_ran = row.every_peer_ran && run.why.empty();
    for (const PeerLine& line : run.lines) {
      if (line.name != row.what->name || line.dtype != dtype_word(row.dtype) ||
          line.direction != to_string(row.direction)) {
        continue;
      }
      PeerTimes times = line.times;
      if (times.times && line.pairs != row.pairs) {
        times.times.reset();
        times.why = fmt::format("it counts {} legal pairs, ours are {}",
                                line.pairs, row.pairs);
      }
      row.peers.push_back(std::move(times));
    }
  }
}

}  // namespace tessera::cli
