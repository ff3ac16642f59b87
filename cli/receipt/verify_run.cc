// cli/receipt/verify_run.cc: a receipt, proved or refuted by running it again.
#include "cli/receipt/verify_run.h"

#include <algorithm>

#include "base/fail.h"
#include "base/text.h"
#include "cli/compile/receipt.h"
#include "cli/request/spec.h"
#include "cli/run/run.h"
#include "receipt/receipt.h"
#include "run/receipt_parts.h"
#include "run/verify.h"
#include "tessera/version.h"

namespace tessera::cli {
namespace {

// The request of a receipt is a spec.
Result<RequestFlags> request_of(const Json& receipt) {
  RequestFlags out;
  if (receipt["plan_file"].is_string()) {
    out.plan = receipt["plan_file"];
    return out;
  }
  auto text = parse_spec(receipt["request"].dump());
  if (!text) return text.error();
  static_cast<RequestText&>(out) = std::move(*text);
  return out;
}

// The settings of a router; of picks that were given to it, those that judging
// them reads.
RouteFlags router_of(const Json& receipt, const RequestFlags& request) {
  RouteFlags out;
  Request masks;
  for (const std::string& text : request.masks) {
    auto mask = parse_mask(text);
    if (mask) masks.masks.push_back(std::move(*mask));
  }
  if (receipt["routing"].is_null() || !names_router(masks)) return out;
  const Json& s = receipt["routing"]["settings"];
  const bool given = receipt["routing"]["given"].get<bool>();
  const std::pair<const char*, std::optional<std::string>*> fields[] = {
      {"rule", &out.rule},
      {"compression", &out.compression},
      {"stride", &out.stride},
      {"query_tile", &out.query_tile},
      {"kv_tile", &out.kv_tile},
      {"sink_blocks", &out.sink_blocks},
      {"meta_ratio", &out.meta_ratio},
      {"top_metas", &out.top_metas},
      {"union_by", &out.union_by},
      {"meaning", &out.meaning}};
  for (const auto& [name, flag] : fields) {
    const std::string_view field = name;
    const bool judges =
        field == "query_tile" || field == "union_by" || field == "meaning";
    if (given && !judges) continue;
    *flag = s[name].is_string() ? s[name].get<std::string>() : s[name].dump();
  }
  out.hierarchical = !given && s["hierarchical"].get<bool>();
  out.strict = s["strict"].get<bool>();
  return out;
}

bool is_in(const Json& array, std::string_view text) {
  return std::find(array.begin(), array.end(), text) != array.end();
}

// A kernel that was compiled and not run: made again, which needs no plugin.
Result<Verdicts> verify_compiled(const Json& receipt, const RunFlags& flags,
                                 Verdicts out) {
  KernelFlags kernel;
  kernel.run = flags;
  kernel.run.layout.reset();
  kernel.run.seed.reset();
  kernel.run.sink_logits = kernel.run.backward = kernel.run.check = false;
  const Json& parameters = receipt["parameters"];
  for (const auto& [name, value] :
       {std::pair("tiles_per_pass", &kernel.tiles_per_pass),
        std::pair("fetch_ahead", &kernel.fetch_ahead)}) {
    if (!parameters.contains(name)) {
      return invalid("receipt",
                     "a kernel must have its parameters, found no "
                     "{}",
                     name);
    }
    *value = parameters[name].dump();
  }
  const Json& p = receipt["plugin"];
  const Json& target = receipt["request"]["target"];
  if (p.is_null() || !target.is_string()) {
    return invalid("receipt",
                   "what was compiled must have a plugin and a target, found "
                   "no {}",
                   p.is_null() ? "plugin" : "target");
  }
  CompiledBy by;
  by.target = target;
  kernel.run.request.target = target;
  by.machine = machine_of(receipt);
  // Its file and its versions are what it says of itself.
  by.plugin = {p["file"], p["api"], "tpu", p["platform_version"], target, 0};
  auto asked = make_asked_kernel(kernel, by.target);
  if (!asked) return asked.error();
  auto again = compile_receipt(kernel, *asked, by);
  if (!again) return again.error();
  Json found = Json::parse(receipt_json(*again));
  Json claimed = receipt;
  for (const char* name :
       {"machine", "ms", "device", "tessera", "receipt_digest", "gflops"}) {
    found.erase(name);
    claimed.erase(name);
  }
  out.compared = count_leaves(found);
  out.wrong = differences(claimed, found);
  out.notes.emplace_back("nothing ran: it says compiled only");
  return out;
}

}  // namespace

void note_version(const Json& receipt, Verdicts& out) {
  if (receipt["tessera"] == kVersion) return;
  out.notes.push_back(
      fmt::format("it was written by tessera {}, and this is {}",
                  in_quotes(receipt["tessera"].get<std::string>()), kVersion));
}

Result<RunFlags> flags_of(const Json& r) {
  RunFlags out;
  auto request = request_of(r);
  if (!request) return request.error();
  out.request = std::move(*request);
  out.route = router_of(r, out.request);
  const Json& inputs = r["inputs"];
  const Json& shape = r["shape"];
  if (inputs["file"].is_string()) {
    out.inputs = inputs["file"];
  } else if (r["lane"]["runtime_mode"] == "executed" &&
             !is_in(inputs["drawn"], "q")) {
    return unavailable("receipt",
                       "to run it again, its arrays must be drawn or in a "
                       "file, found neither");
  }
  const auto number = [](const Json& value) { return value.dump(); };
  out.heads = number(shape["heads"]);
  out.kv_heads = number(shape["kv_heads"]);
  out.head_dim = number(shape["head_dim"]);
  out.v_head_dim = number(shape["v_head_dim"]);
  out.dtype = shape["dtype"];
  out.layout = shape["layout"];
  out.scale = number(shape["scale"]);
  out.softcap = number(shape["softcap"]);
  out.seed = number(inputs["seed"]);
  out.sink_logits = is_in(inputs["drawn"], "sink_logits");
  out.backward = r["direction"] == "forward+backward";
  out.check = r["check"]["kind"] != "none";
  if (r["lane"]["executed"].is_null()) return out;
  out.lane = r["lane"]["executed"];
  if (*out.lane == "cpu") {
    if (r["isa"].is_string()) out.isa = r["isa"];
    if (r["threads"].is_number()) out.threads = number(r["threads"]);
  }
  if (*out.lane == "xla" && r["method"].is_string()) out.method = r["method"];
  if (*out.lane == "xla" || *out.lane == "jax_bridge") {
    if (r["plugin"].is_object()) {
      out.device = number(r["plugin"]["number"]);
    }
    out.cache = "off";  // the compiler is asked again
  }
  const Json& artifact = r["artifact"];
  if (*out.lane == "jax_bridge" && artifact.is_object()) {
    if (!artifact["file"].is_string() || !artifact["shapes_file"].is_string()) {
      return unavailable("receipt",
                         "to run it again, its artifact and shapes must be in "
                         "files, found none");
    }
    out.artifact = artifact["file"];
    out.shapes = artifact["shapes_file"];
  }
  return out;
}

namespace {

// Compares all that a second run can tell.
Result<Verdicts> compare_again(const Json& receipt,
                               const std::optional<std::string>& plugin,
                               Verdicts out) {
  auto flags = flags_of(receipt);
  if (!flags) return flags.error();
  if (receipt["lane"]["runtime_mode"] != "executed") {
    return verify_compiled(receipt, *flags, std::move(out));
  }
  if (receipt["plugin"].is_object()) {
    auto file = plugin_to_load(receipt, plugin);
    if (!file) return file.error();
    flags->plugin = std::move(*file);
  }
  auto again = run_once(*flags);
  if (!again) return again.error();
  RunsCompared compared =
      compare_runs(receipt, Json::parse(receipt_json(again->receipt)),
                   again->features, again->plan);
  if (!compared.here) {
    out.notes.emplace_back(
        "it ran on another machine, whose name cannot be compared here");
  }
  out.compared = compared.fields;
  out.wrong = std::move(compared.wrong);
  return out;
}

}  // namespace

Result<Verdicts> verify_receipt(const Json& receipt,
                                const std::optional<std::string>& plugin) {
  Verdicts out;
  out.contradictions = contradictions(receipt);
  note_version(receipt, out);
  const std::vector<std::string> found = out.contradictions;
  auto compared = compare_again(receipt, plugin, std::move(out));
  if (compared || found.empty()) return compared;
  // What contradicts itself need not run.
  Verdicts refuted;
  refuted.contradictions = found;
  return refuted;
}

}  // namespace tessera::cli
