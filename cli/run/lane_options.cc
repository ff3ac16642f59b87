// cli/run/lane_options.cc: the lanes that may run, and the options of each.
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/lowering.h"
#include "cli/numbers.h"
#include "cli/run/options.h"
#include "request/numbers.h"
#include "run/session_state.h"
#include "tessera/bridge.h"

namespace tessera::cli {
namespace {

Result<void> read_cpu(const RunFlags& f, CpuOptions& cpu) {
  if (f.threads) {
    auto threads = request::parse_int(*f.threads, "--threads", 1, kMaxThreads);
    if (!threads) return threads.error();
    cpu.threads = static_cast<int>(*threads);
  }
  if (f.isa) {
    auto isa = parse_isa(*f.isa);
    if (!isa) return isa.error();
    cpu.isa = *isa;
  }
  return {};
}

Result<void> read_xla(const RunFlags& f, XlaOptions& xla) {
  if (f.method) {
    auto method = parse_xla_method(*f.method);
    if (!method) return method.error();
    xla.method = *method;
  }
  auto compiles = request::parse_int(f.max_compiles.value_or("0"),
                                     "--max-compiles", 0, kMaxCompiles);
  if (!compiles) return compiles.error();
  xla.max_compiles = *compiles;
  if (auto e = check_reason_flag(f.lowering_reason); !e) return e;
  xla.lowering_reason = f.lowering_reason;
  auto numbers = parse_numbers(f.numbers.value_or("any"), "--numbers");
  if (!numbers) return numbers.error();
  xla.numbers = *numbers;
  auto row_sum = read_row_sum(f.row_sum);
  if (!row_sum) return row_sum.error();
  xla.row_sum = *row_sum;
  return read_plugin_flags(f, xla);
}

// Reads the artifact, which must give all outputs that a run compares.
Result<void> read_bridge(const RunFlags& f, SessionOptions& options) {
  auto artifact = read_artifact(f.artifact, f.shapes);
  if (!artifact) return artifact.error();
  if (!*artifact) return {};
  const BridgeSpec& spec = (*artifact)->spec;
  if (!spec.splash && !find_role(spec, "lse")) {
    return invalid(
        "cli",
        "--artifact must be attention that gives lse, or splash, found {} "
        "without (`tessera bridge` runs any operation)",
        in_quotes(spec.name));
  }
  options.artifact = std::move(*artifact);
  return {};
}

Result<LaneId> lane_of(std::string_view text, std::string_view flag) {
  std::string names;
  for (const lanes::Lane& lane : lanes::lanes()) {
    // A lane that may compute something else is no fallback.
    if (flag != "--lane" && !facts_of(lane.lane).same_meaning) continue;
    if (text == to_string(lane.lane)) return lane.lane;
    names += fmt::format(", {}", to_string(lane.lane));
  }
  return invalid("cli", "{} must be one of {}{}, found {}", flag,
                 flag == "--lane" ? "auto" : names.substr(2),
                 flag == "--lane" ? names : "", in_quotes(text));
}

}  // namespace

Result<std::optional<BridgeArtifact>> read_artifact(
    const std::optional<std::string>& file,
    const std::optional<std::string>& shapes) {
  if (file.has_value() != shapes.has_value()) {
    return invalid("cli", "--artifact goes with --shapes, found {} alone",
                   file ? "--artifact" : "--shapes");
  }
  if (!file) return std::optional<BridgeArtifact>();
  auto artifact = load_artifact(*file, *shapes);
  if (!artifact) return artifact.error();
  return std::optional(std::move(*artifact));
}

Result<void> read_mesh(const RunFlags& f, SessionOptions& o) {
  if (!f.mesh) {
    if (f.given().empty()) return {};
    return invalid("cli", "{} goes with --mesh, found no --mesh", f.given());
  }
  auto mesh = parse_mesh(*f.mesh);
  if (!mesh) return mesh.error();
  o.mesh = std::move(*mesh);
  auto shards = parse_shard_options(f.words());
  if (!shards) return shards.error();
  o.shards = std::move(*shards);
  return {};
}

Result<void> read_lane_options(const RunFlags& f, SessionOptions& o) {
  if (f.lane && *f.lane != "auto") {
    auto lane = lane_of(*f.lane, "--lane");
    if (!lane) return lane.error();
    o.lane = *lane;
  }
  if (f.fallback) {
    for (const std::string_view name : request::split(*f.fallback, ',')) {
      auto lane = lane_of(request::trim(name), "--fallback");
      if (!lane) return lane.error();
      o.fallback.push_back(*lane);
    }
    if (auto e = run::check_fallback(o.fallback); !e) return e.error();
  }
  if (f.gate) {
    if (o.lane) {
      return invalid("cli", "--gate goes with --lane auto, found --lane {}",
                     to_string(*o.lane));
    }
    auto text = read_file(*f.gate, kMaxGateBytes);
    if (!text) return text.error();
    auto gate = parse_gate(*text);
    if (!gate) return in_file(gate.error(), *f.gate);
    o.gate = std::move(*gate);
  }
  if (o.lane) {
    std::vector<LaneId> lanes = o.fallback;
    lanes.push_back(*o.lane);
    if (auto e = check_lane_flags(f, lanes, to_string(*o.lane)); !e) return e;
  }
  if (auto e = read_bridge(f, o); !e) return e.error();
  if (auto e = read_cpu(f, o.cpu); !e) return e.error();
  if (auto e = read_mesh(f, o); !e) return e.error();
  return read_xla(f, o.xla);
}

}  // namespace tessera::cli
