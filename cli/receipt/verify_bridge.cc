// cli/receipt/verify_bridge.cc: a bridge receipt, proved or refuted by running
// it again.
#include "cli/receipt/verify_bridge.h"

#include "cli/bridge/run.h"
#include "run/verify.h"

namespace tessera::cli {
namespace {

// What a second run cannot tell: history and time. What compiles and cache hits
// come to is checked by contradictions().
constexpr const char* kHistory[] = {"compiles", "cache_hits", "ms", "warnings",
                                    "receipt_digest"};

BridgeFlags flags_of_bridge(const Json& r, std::string plugin) {
  BridgeFlags out;
  out.artifact = r["artifact"]["file"];
  out.shapes = r["artifact"]["shapes_file"];
  if (r["inputs"]["file"].is_string()) {
    out.inputs = r["inputs"]["file"];
  } else {
    out.seed = r["inputs"]["seed"].dump();
  }
  out.plugin = std::move(plugin);
  out.device = r["plugin"]["number"].dump();
  out.cache = "off";  // the compiler is asked again
  out.check = r["check"]["kind"] != "none";
  return out;
}

}  // namespace

Result<Verdicts> verify_bridge_receipt(
    const Json& receipt, const std::optional<std::string>& plugin) {
  Verdicts out;
  out.contradictions = contradictions(receipt);
  // What contradicts itself need not run.
  if (!out.contradictions.empty()) return out;
  auto file = plugin_to_load(receipt, plugin);
  if (!file) return file.error();
  auto again = bridge_once(flags_of_bridge(receipt, std::move(*file)));
  if (!again) return again.error();
  Json found = Json::parse(bridge_json(again->report));
  Json claimed = receipt;
  for (const char* name : kHistory) {
    found.erase(name);
    claimed.erase(name);
  }
  note_version(claimed, out);
  found.erase("tessera");
  claimed.erase("tessera");
  out.compared = count_leaves(found);
  out.wrong = differences(claimed, found);
  return out;
}

}  // namespace tessera::cli
