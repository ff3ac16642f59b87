// cli/bridge/report.cc: what the bridge ran, as a receipt and in words.
#include "cli/bridge/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "receipt/parts.h"
#include "tessera/version.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;
using parts::number;
using parts::text;

// Programs of JAX, whichever device runs them.
constexpr const char* kFamily = "tpu/jax";
constexpr const char* kWider =
    "the whole artifact and its shapes: what JAX baked in is part of the key, "
    "and another mask, length or scale is another compile";

Json arrays_json(const std::vector<BridgeArray>& arrays) {
  Json out = Json::array();
  for (const BridgeArray& a : arrays) {
    out.push_back(
        {{"name", a.name}, {"dtype", to_string(a.dtype)}, {"shape", a.shape}});
  }
  return out;
}

std::string arrays_text(const std::vector<BridgeArray>& arrays) {
  std::string out;
  for (const BridgeArray& a : arrays) {
    out +=
        fmt::format("{}{} {} [{}]", out.empty() ? "" : ", ", in_quotes(a.name),
                    to_string(a.dtype), fmt::join(a.shape, ", "));
  }
  return out.empty() ? "none" : out;
}

std::string check_text(const Receipt::Check& c) {
  if (!c.passed) {
    return fmt::format("FAILED: {}, {:.3g} times the error bound, {} {} rows",
                       c.worst, c.max_bound_ratio, c.rows, c.kind);
  }
  return fmt::format(
      "passed: {} {} rows, {:.3g} % of the error bound at most, largest error "
      "{:.2g}",
      c.rows, c.kind, 100 * c.max_bound_ratio, c.max_error);
}

std::string how(const BridgeRun& run) {
  if (run.compiles > 0)
    return fmt::format("compiled, {:.0f} ms", run.compile_ms);
  return fmt::format("from the cache {}, {:.1f} ms",
                     run.disk_hits > 0 ? "on disk" : "in memory",
                     run.compile_ms);
}

}  // namespace

std::string bridge_json(const BridgeReport& r, int indent) {
  Json drawn = Json::array();
  Json digests = Json::object();
  for (const auto& [name, digest] : r.input_digests) {
    digests[name] = digest;
    if (r.inputs_file.empty()) drawn.push_back(name);
  }
  Json out = {
      {"schema", kBridgeReceiptSchema},
      {"tessera", kVersion},
      {"lane",
       {{"requested", "jax_bridge"},
        {"source", "command"},
        {"executed", "jax_bridge"},
        {"family", kFamily},
        {"runtime_mode", "executed"}}},
      {"plugin", parts::plugin_json(r.plugin)},
      {"operation", r.spec.operation},
      {"name", r.spec.name},
      {"artifact",
       {{"file", text(r.artifact_file)},
        {"shapes_file", text(r.shapes_file)},
        {"bytes", r.spec.artifact_bytes},
        {"digest", r.run.artifact_digest},
        {"jax", r.spec.jax},
        {"calling_convention_version", r.spec.calling_convention_version},
        {"platforms", r.spec.platforms}}},
      {"inputs",
       {{"seed", r.seed},
        {"file", parts::file_name(r.inputs_file)},
        {"drawn", drawn},
        {"arrays", arrays_json(r.spec.inputs)},
        {"digests", digests}}},
      {"outputs", arrays_json(r.spec.outputs)},
      {"key",
       {{"digest", r.run.contract.key},
        {"wider", true},
        {"of", kWider},
        {"terms", Json::parse(r.run.contract.text)}}},
      {"compiles", r.run.compiles},
      {"cache_hits",
       {{"memory", r.run.memory_hits}, {"disk", r.run.disk_hits}}},
      {"fallback", nullptr},
      {"ms",
       {{"compile", number(r.run.compile_ms)},
        {"transfer", number(r.run.transfer_ms)},
        {"run", number(r.run.run_ms)}}},
      {"warnings", parts::texts(r.run.warnings)},
      {"check", parts::check_json(r.check)},
      {"output", {{"digest", r.output_digest}}},
  };
  parts::add_digest(out);
  return out.dump(indent);
}

std::string bridge_text(const BridgeReport& r) {
  std::string out;
  const auto line = [&](std::string_view name, const std::string& text) {
    out += fmt::format("{:<11} {}\n", name, text);
  };
  line("lane", fmt::format("jax_bridge ({}): {} {}, exported by JAX {}",
                           kFamily, r.spec.operation, in_quotes(r.spec.name),
                           in_quotes(r.spec.jax)));
  const Receipt::Plugin p = r.plugin.value_or(Receipt::Plugin{});
  line("plugin", fmt::format("{}, PJRT {}, {} of platform {}",
                             in_quotes(p.file, p.file.size()), p.api, p.device,
                             p.platform));
  line("inputs",
       fmt::format("{} ({})", arrays_text(r.spec.inputs),
                   r.inputs_file.empty() ? fmt::format("seed {}", r.seed)
                                         : in_quotes(r.inputs_file)));
  line("outputs", arrays_text(r.spec.outputs));
  line("key", r.run.contract.key +
                  ", wider than a kernel contract: the "
                  "artifact and its shapes");
  line("program", how(r.run));
  line("time", fmt::format("run {:.3g} ms, transfer {:.3g} ms", r.run.run_ms,
                           r.run.transfer_ms));
  if (r.check.kind != "none") line("check", check_text(r.check));
  line("digest", r.output_digest);
  return out;
}

}  // namespace tessera::cli
