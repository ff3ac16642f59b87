// receipt/receipt.cc: a receipt as JSON, fields in the order of the header.
#include "receipt/receipt.h"

#include <nlohmann/json.hpp>

#include "receipt/parts.h"
#include "receipt/routing_json.h"

namespace tessera {
namespace {

using Ordered = nlohmann::ordered_json;
using parts::check_json;
using parts::file_name;
using parts::number;
using parts::plugin_json;
using parts::text;
using parts::texts;

Ordered artifact_json(const Receipt::Artifact& a) {
  if (a.digest.empty()) return nullptr;
  return {{"file", file_name(a.file)},
          {"shapes_file", file_name(a.shapes_file)},
          {"digest", a.digest}};
}

Ordered routing_json(const std::optional<Receipt::Routing>& r) {
  if (!r) return nullptr;
  return {{"given", r->given},
          {"settings", route_settings_json(r->settings)},
          {"heads", r->heads},
          {"picks", r->picks},
          {"removed", r->removed},
          {"union_blocks", r->union_blocks},
          {"tile_rows", r->tile_rows},
          {"widest_union", r->widest_union},
          {"union_capacity", r->union_capacity},
          {"phases", route_phases_json()}};
}

Ordered lane_json(const Receipt::Lane& l) {
  return {
      {"requested", l.requested},
      {"source", l.source},
      {"chosen", l.chosen},
      {"executed", l.executed.empty() ? Ordered(nullptr) : Ordered(l.executed)},
      {"family", l.family},
      {"runtime_mode", l.runtime_mode},
      {"fallback_allowed", texts(l.fallback_allowed)}};
}

Ordered choice_json(const Receipt::Choice& c) {
  Ordered rejected = Ordered::object();
  for (const auto& [lane, reason] : c.rejected) rejected[lane] = text(reason);
  return {{"class", c.request_class},
          {"reason", text(c.reason)},
          {"rejected", rejected},
          {"measured",
           c.measured.empty() ? Ordered(nullptr) : Ordered::parse(c.measured)}};
}

Ordered machine_json(const Receipt::Machine& m) {
  Ordered plugins = Ordered::array();
  for (const Receipt::Machine::Plugin& p : m.plugins) {
    plugins.push_back({{"name", text(p.name)},
                       {"platform", text(p.platform)},
                       {"devices", p.devices}});
  }
  return {{"cpu", text(m.cpu)},
          {"system", text(m.system)},
          {"threads", m.threads},
          {"isas", texts(m.isas)},
          {"loads_plugins", m.loads_plugins},
          {"asked_plugins", m.asked_plugins},
          {"plugins", plugins}};
}

}  // namespace

double Receipt::useful_flop() const {
  const double dims = static_cast<double>(shape.attention.head_dim +
                                          shape.attention.v_head_dim);
  return static_cast<double>(pairs_legal) * dims * (backward ? 7 : 2);
}

double Receipt::useful_gflops() const {
  const double ms = forward_ms + backward_ms;
  return ms > 0 ? useful_flop() / ms / 1e6 : 0;
}

std::string receipt_json(const Receipt& r, int indent) {
  const AttentionShape& a = r.shape.attention;
  Ordered digests = Ordered::object();
  for (const auto& [name, digest] : r.inputs.digests) digests[name] = digest;
  Ordered kernels = Ordered::object();
  for (const auto& [name, key] : r.kernels) kernels[name] = key;
  Ordered out = {
      {"schema", kReceiptSchema},
      {"tessera", r.version},
      {"lane", lane_json(r.lane)},
      {"choice", choice_json(r.choice)},
      {"machine", machine_json(r.machine)},
      {"isa", r.isa ? Ordered(*r.isa) : Ordered(nullptr)},
      {"threads", r.threads ? Ordered(*r.threads) : Ordered(nullptr)},
      {"device", text(r.device)},
      {"plugin", plugin_json(r.plugin)},
      {"method", r.method.empty() ? Ordered(nullptr) : Ordered(r.method)},
      {"artifact", artifact_json(r.artifact)},
      {"parameters", r.parameters},
      {"direction", r.backward ? "forward+backward" : "forward"},
      {"request", request_json(r.request)},
      {"plan_file", file_name(r.plan_file)},
      {"facts_digest", r.facts_digest},
      {"shape",
       {{"heads", a.heads},
        {"kv_heads", a.kv_heads},
        {"head_dim", a.head_dim},
        {"v_head_dim", a.v_head_dim},
        {"dtype", r.shape.dtype},
        {"layout", r.shape.layout},
        {"scale", number(r.shape.scale)},
        {"softcap", number(a.softcap)},
        {"sink_logits", r.shape.sink_logits}}},
      {"inputs",
       {{"seed", r.inputs.seed},
        {"file", file_name(r.inputs.file)},
        {"drawn", r.inputs.drawn},
        {"digests", digests}}},
      {"contract", r.contract},
      {"kernels", kernels},
      {"plan",
       {{"digest",
         r.plan_digest.empty() ? Ordered(nullptr) : Ordered(r.plan_digest)}}},
      {"tiles", {{"run", r.tiles_run}, {"skipped", r.tiles_skipped}}},
      {"pairs", {{"legal", r.pairs_legal}, {"run", r.pairs_run}}},
      {"routing", routing_json(r.routing)},
      {"compiles", r.compiles},
      {"cache_hits",
       {{"memory", r.cache_hits.memory}, {"disk", r.cache_hits.disk}}},
      {"fallback", r.fallback ? text(*r.fallback) : Ordered(nullptr)},
      {"ms",
       {{"route", number(r.route_ms)},
        {"plan", number(r.plan_ms)},
        {"prepare", number(r.prepare_ms)},
        {"compile", number(r.compile_ms)},
        {"transfer", number(r.transfer_ms)},
        {"forward", number(r.forward_ms)},
        {"backward", number(r.backward_ms)},
        {"total", number(r.total_ms())}}},
      {"gflops", {{"useful", number(r.useful_gflops())}}},
      {"warnings", texts(r.warnings)},
      {"check", check_json(r.check)},
      {"output",
       {{"digest", r.output_digest.empty() ? Ordered(nullptr)
                                           : Ordered(r.output_digest)}}},
  };
  parts::add_digest(out);
  return out.dump(indent);
}

}  // namespace tessera
