// bench/routed/peer.cc: gives the script inputs and sampled results as a file,
// and reads its output.
#include "bench/routed/peer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "bench/harness/peer_script.h"
#include "bench/harness/temp_folder.h"

namespace tessera::bench {

using request::Array;
using request::AttentionData;

namespace {

using nlohmann::json;

constexpr const char* kScript = "routed_torch.py";
constexpr const char* kVariable = "TESSERA_TORCH_PYTHON";
constexpr int64_t kSampled = 256;  // queries of each head

RoutedPeer not_measured(const std::string& why) {
  RoutedPeer peer;
  peer.why = why;
  return peer;
}

// Our picks of queries spread over the row, to which the peer's are compared.
struct Samples {
  std::vector<int32_t> queries;  // [sampled]
  std::vector<int32_t> picks;    // [heads, sampled, top]
};

Samples samples_of(const AttentionData& data, const RouteResult& routed) {
  Samples s;
  const int64_t sampled = std::min(kSampled, data.q_len);
  for (int64_t n = 1; n <= sampled; ++n) {
    s.queries.push_back(static_cast<int32_t>(n * data.q_len / sampled - 1));
  }
  for (int64_t h = 0; h < data.shape.heads; ++h) {
    for (const int32_t q : s.queries) {
      const auto from = routed.picks.begin() + (h * data.q_len + q) * routed.k;
      s.picks.insert(s.picks.end(), from, from + routed.k);
    }
  }
  return s;
}

Result<void> write_problem(const std::string& path, AttentionData& data,
                           const RouteResult& routed) {
  const Samples s = samples_of(data, routed);
  const auto sampled = static_cast<int64_t>(s.queries.size());
  Safetensors file;
  const auto add = [&](const char* name, Array& array) {
    file.tensors[name] = {data.dtype, array.shape(), array.bytes()};
  };
  add("q", data.q);
  add("k", data.k);
  add("v", data.v);
  file.tensors["queries"] = {
      Dtype::i32, {sampled}, bytes_of(std::span<const int32_t>(s.queries))};
  file.tensors["picks"] = {Dtype::i32,
                           {data.shape.heads, sampled, routed.k},
                           bytes_of(std::span<const int32_t>(s.picks))};
  auto bytes = write_safetensors(file);
  if (!bytes) return bytes.error();
  return write_file(path, *bytes);
}

RoutedPeerRun failed(const std::string& why) {
  RoutedPeerRun run;
  run.ways.push_back(not_measured(why));
  return run;
}

}  // namespace

std::vector<RoutedPeer> parse_routed_lines(std::string_view text,
                                           json& versions) {
  std::vector<RoutedPeer> out;
  for (const json& line : script_lines(text)) {
    if (line.contains("versions")) versions = line["versions"];
    RoutedPeer p;
    read_field(line, "way", p.way);
    if (p.way.empty()) continue;
    read_field(line, "why", p.why);
    read_field(line, "ms", p.ms);
    read_field(line, "route_ms", p.route_ms);
    read_field(line, "attend_ms", p.attend_ms);
    read_field(line, "same_picks", p.same_picks);
    read_field(line, "error", p.error);
    double runs = 0;
    read_field(line, "runs", runs);
    p.runs = runs > 0 && runs < 1e9 ? static_cast<int64_t>(runs) : 0;
    if (!(p.ms > 0) && p.why.empty()) p.why = "its line has no time";
    out.push_back(std::move(p));
  }
  return out;
}

json to_json(const RoutedPeer& p) {
  return {{"peer", "torch"},        {"way", p.way},
          {"why", p.why},           {"ms", p.ms},
          {"route_ms", p.route_ms}, {"attend_ms", p.attend_ms},
          {"runs", p.runs},         {"same_picks", p.same_picks},
          {"error", p.error}};
}

const RoutedPeer* best_of(const std::vector<RoutedPeer>& ways) {
  const RoutedPeer* best = nullptr;
  for (const RoutedPeer& p : ways) {
    if (p.measured() && (!best || p.ms < best->ms)) best = &p;
  }
  return best;
}

RoutedPeerRun run_routed_peer(const RoutedPeerRequest& r, AttentionData& data,
                              const RoutedRun& run) {
  const ScriptFile script = {r.folder, kScript, kVariable};
  if (const std::string why = why_no_script(script); !why.empty()) {
    return failed(why);
  }
  const RouteSettings& s = run.routed().settings;
  if (s.meaning != RouteMeaning::exact) {
    return failed("its queries attend to their own picks");
  }
  TempFolder folder;
  if (auto ok = folder.make(); !ok) return failed(ok.error().message);
  const std::string problem = folder.file("problem.safetensors");
  if (auto ok = write_problem(problem, data, run.routed()); !ok) {
    return failed(ok.error().message);
  }
  const ScriptRun ran = run_script(
      script,
      {"--inputs", problem, "--top", std::to_string(s.top), "--block",
       std::to_string(s.block), "--threads", std::to_string(r.threads),
       "--seconds", fmt::format("{}", r.seconds), "--budget",
       fmt::format("{}", r.limit * 0.8)},
      peer_environment(r.isa, r.threads), r.limit);
  RoutedPeerRun out;
  out.ways = parse_routed_lines(ran.out, out.versions);
  if (!ran.why.empty()) {
    out.ways.push_back(not_measured(ran.why));
  } else if (out.ways.empty()) {
    out.ways.push_back(not_measured("it said nothing"));
  }
  return out;
}

}  // namespace tessera::bench
