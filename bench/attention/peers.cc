// bench/attention/peers.cc: runs a peer's script within its time limit.
#include "bench/attention/peers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/dtype_word.h"
#include "bench/harness/peer_script.h"
#include "cli/machine.h"

namespace tessera::bench {

using cli::OtherCores;

namespace {

using nlohmann::json;

constexpr PeerScript kScripts[] = {
    {"torch", "attention_torch.py", "TESSERA_TORCH_PYTHON"},
    {"flex", "attention_flex.py", "TESSERA_TORCH_PYTHON"},
    {"onnxruntime", "attention_ort.py", "TESSERA_ORT_PYTHON"},
    {"openvino", "attention_openvino.py", "TESSERA_ORT_PYTHON"},
};

}  // namespace

std::span<const PeerScript> peer_scripts() { return kScripts; }

std::vector<PeerLine> parse_peer_lines(std::string_view text, json& versions) {
  std::vector<PeerLine> out;
  for (const json& line : script_lines(text)) {
    if (line.contains("versions")) versions = line["versions"];
    PeerLine p;
    read_field(line, "peer", p.times.peer);
    read_field(line, "case", p.name);
    read_field(line, "dtype", p.dtype);
    read_field(line, "direction", p.direction);
    if (p.times.peer.empty() || p.name.empty()) continue;
    read_field(line, "pairs", p.pairs);
    read_field(line, "error", p.times.error);
    read_field(line, "why", p.times.why);
    RunTimes times;
    read_field(line, "ms", times.best_ms);
    read_field(line, "median_ms", times.median_ms);
    read_field(line, "runs", times.runs);
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
  std::vector<std::string> arguments = {
      "--docs",     request.docs,
      "--tokens",   std::to_string(request.tokens),
      "--head-dim", std::to_string(request.head_dim),
      "--dtype",    dtype_word(request.dtype),
      "--threads",  std::to_string(request.threads),
      "--cases",    fmt::format("{}", fmt::join(request.cases, ",")),
      "--seconds",  fmt::format("{}", request.seconds),
      "--budget",   fmt::format("{}", request.limit * 0.8)};
  if (request.backward) arguments.emplace_back("--backward");
  const OtherCores others;
  ScriptRun ran = run_script(
      {request.folder, std::string(script.file), std::string(script.variable)},
      arguments, peer_environment(request.isa, request.threads), request.limit);
  run.other_cores = others.so_far();
  run.seconds = ran.seconds;
  run.lines = parse_peer_lines(ran.out, run.versions);
  run.why = std::move(ran.why);
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

}  // namespace tessera::bench
