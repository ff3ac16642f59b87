// cli/receipt/second_run.cc: a receipt's fields as the flags of its command.
#include "cli/receipt/second_run.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/fail.h"
#include "cli/bridge/run.h"
#include "cli/compile/receipt.h"
#include "cli/run/run.h"
#include "receipt/parts.h"
#include "run/receipt_parts.h"

namespace tessera::cli {
namespace {

bool is_in(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// The settings of a router; of picks that were given to it, those that judging
// them reads.
RouteFlags route_flags(const receipt::Receipt& r) {
  RouteFlags out;
  Request masks;
  for (const std::string& text : r.request.masks) {
    auto mask = parse_mask(text);
    if (mask) masks.masks.push_back(std::move(*mask));
  }
  if (!r.routing || !r.plan_file.empty() || !names_router(masks)) return out;
  const Json s = receipt::fields_json(r.routing->settings);
  const bool given = r.routing->given;
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
  constexpr std::array<std::string_view, 3> kJudging = {"query_tile",
                                                        "union_by", "meaning"};
  for (const auto& [name, flag] : fields) {
    if (given && std::ranges::find(kJudging, name) == kJudging.end()) continue;
    *flag = s[name].is_string() ? s[name].get<std::string>() : s[name].dump();
  }
  out.hierarchical = !given && r.routing->settings.hierarchical;
  out.strict = r.routing->settings.strict;
  return out;
}

// Those of the request and the arrays.
Result<RunFlags> array_flags(const receipt::Receipt& r) {
  RunFlags out;
  if (r.plan_file.empty()) {
    static_cast<receipt::RequestText&>(out.request) = r.request;
  } else {
    out.request.plan = r.plan_file;
  }
  out.route = route_flags(r);
  if (!r.inputs.file.empty()) {
    out.inputs = r.inputs.file;
  } else if (r.ran() && !is_in(r.inputs.drawn, "q")) {
    return unavailable("receipt",
                       "to run it again, its arrays must be drawn or in a "
                       "file, found neither");
  }
  const auto number = [](auto value) { return Json(value).dump(); };
  const AttentionShape& shape = r.shape.attention;
  out.heads = number(shape.heads);
  out.kv_heads = number(shape.kv_heads);
  out.head_dim = number(shape.head_dim);
  out.v_head_dim = number(shape.v_head_dim);
  out.dtype = r.shape.dtype;
  out.layout = r.shape.layout;
  out.scale = number(r.shape.scale);
  out.softcap = number(shape.softcap);
  out.seed = number(r.inputs.seed);
  out.sink_logits = is_in(r.inputs.drawn, "sink_logits");
  out.backward = r.backward;
  out.check = r.check.kind != "none";
  return out;
}

// The plugin and the artifact, for flags of a run or of the bridge.
template <class Flags>
Result<void> add_program_flags(const receipt::Receipt& r,
                               const std::optional<std::string>& plugin,
                               Flags& out) {
  if (r.plugin) {
    auto file = run::plugin_to_load(r, plugin);
    if (!file) return file.error();
    out.plugin = std::move(*file);
    out.device = fmt::to_string(r.plugin->number);
    out.cache = "off";  // the compiler is asked again
  }
  if (!r.artifact) return {};
  if (r.artifact->file.empty() || r.artifact->shapes_file.empty()) {
    return unavailable("receipt",
                       "to run it again, its artifact and shapes must be in "
                       "files, found none");
  }
  out.artifact = r.artifact->file;
  out.shapes = r.artifact->shapes_file;
  return {};
}

Result<run::SecondRun> run_plan(const receipt::Receipt& claimed,
                                const std::optional<std::string>& plugin) {
  auto flags = array_flags(claimed);
  if (!flags) return flags.error();
  flags->lane = claimed.lane.executed;
  if (*flags->lane == "cpu") {
    flags->isa = claimed.isa;
    if (claimed.threads) flags->threads = fmt::to_string(*claimed.threads);
  }
  if (*flags->lane == "xla") flags->method = claimed.method;
  if (claimed.shards) {
    flags->mesh = claimed.shards->mesh;
    flags->balance = claimed.shards->balance;
    flags->uneven = claimed.shards->uneven;
  }
  if (auto e = add_program_flags(claimed, plugin, *flags); !e) {
    return e.error();
  }
  auto run = run_request(*flags);
  if (!run) return run.error();
  receipt::seal(run->receipt);
  return run::SecondRun{std::move(run->receipt),
                        run::SecondRun::Asked{run->features, run->plan}};
}

Result<run::SecondRun> run_operation(const receipt::Receipt& claimed,
                                     const std::optional<std::string>& plugin) {
  BridgeFlags flags;
  if (auto e = add_program_flags(claimed, plugin, flags); !e) return e.error();
  if (claimed.inputs.file.empty()) {
    flags.seed = fmt::to_string(claimed.inputs.seed);
  } else {
    flags.inputs = claimed.inputs.file;
  }
  flags.check = claimed.check.kind != "none";
  auto outcome = run_bridge(flags);
  if (!outcome) return outcome.error();
  return run::SecondRun{std::move(outcome->receipt), {}};
}

// A kernel that was compiled and not run is made again, which needs no plugin.
Result<run::SecondRun> make_kernel(const receipt::Receipt& claimed) {
  KernelFlags kernel;
  auto flags = array_flags(claimed);
  if (!flags) return flags.error();
  kernel.run = std::move(*flags);
  kernel.run.layout.reset();
  kernel.run.seed.reset();
  kernel.run.sink_logits = kernel.run.check = false;
  const auto dlse = claimed.parameters.find("dlse");
  kernel.dlse =
      claimed.backward && dlse != claimed.parameters.end() && dlse->second != 0;
  const auto rounded = claimed.parameters.find("row_sum_rounded");
  if (!claimed.backward && rounded != claimed.parameters.end() &&
      rounded->second != 0) {
    kernel.row_sum = to_string(RowSum::rounded);
  }
  for (const auto& [name, value] :
       {std::pair("tiles_per_pass", &kernel.tiles_per_pass),
        std::pair("fetch_ahead", &kernel.fetch_ahead)}) {
    const auto at = claimed.parameters.find(name);
    if (at == claimed.parameters.end()) {
      return invalid("receipt",
                     "a kernel must have its parameters, found no {}", name);
    }
    *value = fmt::to_string(at->second);
  }
  const auto& target = claimed.request.target;
  if (!claimed.plugin || !target) {
    return invalid("receipt",
                   "what was compiled must have a plugin and a target, found "
                   "no {}",
                   claimed.plugin ? "target" : "plugin");
  }
  CompiledBy by;
  by.target = *target;
  kernel.run.request.target = target;
  by.machine = run::machine_of(claimed);
  // Its file and its versions are what it says of itself.
  by.plugin = {claimed.plugin->file,
               claimed.plugin->api,
               "tpu",
               claimed.plugin->platform_version,
               *target,
               0};
  auto asked = make_asked_kernel(kernel, by.target);
  if (!asked) return asked.error();
  auto receipt = compile_receipt(kernel, *asked, by);
  if (!receipt) return receipt.error();
  return run::SecondRun{std::move(*receipt), {}};
}

}  // namespace

Result<run::SecondRun> second_run(const receipt::Receipt& claimed,
                                  const std::optional<std::string>& plugin) {
  if (!claimed.of_plan) return run_operation(claimed, plugin);
  return claimed.ran() ? run_plan(claimed, plugin) : make_kernel(claimed);
}

}  // namespace tessera::cli
