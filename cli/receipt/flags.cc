// cli/receipt/flags.cc: converts a receipt's fields to the flags of its
// command.
#include "cli/receipt/flags.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "receipt/parts.h"
#include "request/pick_source.h"

namespace tessera::cli {
namespace {

bool is_in(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// The flags of the router's settings. If picks were given to the router, only
// the settings that checking the picks reads.
request::RouteFlags route_flags(const receipt::Receipt& r) {
  request::RouteFlags out;
  Request masks;
  for (const std::string& text : r.request.masks) {
    auto mask = parse_mask(text);
    if (mask) masks.masks.push_back(std::move(*mask));
  }
  if (!r.routing || !r.plan_file.empty() || !request::names_router(masks))
    return out;
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

}  // namespace

Error no_arrays() {
  return unavailable("receipt",
                     "a receipt's arrays must be drawn or in a file for it to "
                     "run again, found neither");
}

Result<RunFlags> flags_of(const receipt::Receipt& r) {
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
    return no_arrays();
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
  if (r.sink_telemetry) {
    out.sink_telemetry = number(r.sink_telemetry->first_keys);
  }
  out.check = r.check.kind != "none";
  return out;
}

Result<KernelFlags> kernel_flags_of(const receipt::Receipt& r) {
  KernelFlags kernel;
  auto flags = flags_of(r);
  if (!flags) return flags.error();
  kernel.run = std::move(*flags);
  if (r.lowering) kernel.run.lowering_reason = r.lowering->reason;
  kernel.run.layout.reset();
  kernel.run.seed.reset();
  kernel.run.sink_logits = kernel.run.check = false;
  const auto dlse = r.parameters.find("dlse");
  kernel.dlse = r.backward && dlse != r.parameters.end() && dlse->second != 0;
  const auto rounded = r.parameters.find("row_sum_rounded");
  if (!r.backward && rounded != r.parameters.end() && rounded->second != 0) {
    kernel.run.row_sum = to_string(RowSum::rounded);
  }
  const auto any = r.parameters.find("any_numbers");
  if (any != r.parameters.end() && any->second != 0) {
    kernel.run.numbers = to_string(Numbers::any);
  }
  for (const auto& [name, value] :
       {std::pair("page_steps", &kernel.page_steps),
        std::pair("query_chunk", &kernel.query_chunk)}) {
    const auto at = r.parameters.find(name);
    if (at != r.parameters.end()) *value = fmt::to_string(at->second);
  }
  for (const auto& [name, value] :
       {std::pair("tiles_per_pass", &kernel.tiles_per_pass),
        std::pair("fetch_ahead", &kernel.fetch_ahead)}) {
    const auto at = r.parameters.find(name);
    if (at == r.parameters.end()) {
      return invalid("receipt",
                     "a kernel must have its parameters, found no {}", name);
    }
    *value = fmt::to_string(at->second);
  }
  return kernel;
}

}  // namespace tessera::cli
