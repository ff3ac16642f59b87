// cli/route/json.cc: the routing report as JSON.
#include "cli/route/report.h"
#include "receipt/parts.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

json stage_json(const RouteReport& r, RouteStage stage) {
  const RouteCounts& c = r.result.counts;
  json out = {{"name", to_string(stage)},
              {"ms", r.ms[static_cast<size_t>(stage)]}};
  switch (stage) {
    case RouteStage::pool:
      out["pooled_keys"] = c.pooled_keys;
      break;
    case RouteStage::window:
      out["routing_tiles"] = c.routing_tiles;
      out["routing_tiles_scored"] = c.routing_tiles_scored;
      break;
    case RouteStage::coarse:
      break;
    case RouteStage::score:
      out["scores"] = c.scores;
      break;
    case RouteStage::top_n:
      out["heads"] = r.result.heads;
      out["slots"] = r.result.k;
      break;
    case RouteStage::legality:
      out["picks"] = c.picks;
      out["removed"] = {{"invalid", c.removed_invalid},
                        {"documents", c.removed_documents},
                        {"future", c.removed_future}};
      break;
    case RouteStage::unions:
      out["tile_rows"] = c.tile_rows;
      out["blocks"] = c.union_blocks;
      out["widest"] = r.result.unions.widest;
      out["capacity"] = r.result.unions.capacity;
      break;
    case RouteStage::expand:
      out["meaning"] = to_string(r.result.settings.meaning);
      out["slots"] = r.result.run_k;
      break;
  }
  return out;
}

}  // namespace

json picks_json(const receipt::Receipt::Routing& p) {
  return {{"meaning", to_string(p.settings.meaning)},
          {"block", p.settings.block},
          {"heads", p.heads},
          {"slots", p.settings.top},
          {"picks", p.picks},
          {"union",
           {{"query_tile", p.settings.query_tile},
            {"tile_rows", p.tile_rows},
            {"blocks", p.union_blocks},
            {"widest", p.widest_union},
            {"capacity", p.union_capacity}}},
          {"keys", {{"needed", p.needed_keys}, {"read", p.read_keys}}}};
}

json route_json(const RouteReport& r) {
  const RouteSettings& s = r.result.settings;
  json stages = json::array();
  for (const RouteStage stage : stages_run(r)) {
    stages.push_back(stage_json(r, stage));
  }
  json out = {
      {"mask", r.mask},
      {"batch", r.request.batch},
      {"q_len", r.request.q_len},
      {"kv_len", r.request.kv_len},
      {"inputs", r.inputs},
      {"threads", r.threads},
      {"settings", receipt::fields_json(s)},
      {"stages", stages},
      {"phases", receipt::route_phases_json()},
      {"warnings", r.result.warnings},
  };
  if (const int64_t most = r.request.ceilings.max_union; most > 0) {
    out["max_union"] = most;
  }
  if (r.recall) {
    out["recall"] = {{"picks", r.recall->picks},
                     {"found", r.recall->found},
                     {"recall", r.recall->recall()},
                     {"worst", r.recall->worst}};
  }
  if (r.plan) {
    out["plan"] = {{"tiles",
                    {{"active", r.plan->tiles_active},
                     {"full", r.plan->tiles_full},
                     {"partial", r.plan->tiles_partial},
                     {"total", r.plan->tiles_total},
                     {"causal", r.causal_tiles}}},
                   {"pairs", r.plan->pairs_needed},
                   {"ms", r.plan_ms}};
  }
  return out;
}

std::span<const JsonField> route_json_fields() {
  static constexpr JsonField kFields[] = {
      {"mask, batch, q_len, kv_len, max_union"},
      {"inputs", "where q and k, or the picks, are from"},
      {"threads"},
      {"settings.NAME", "settings of the router, as a receipt has them"},
      {"stages[].{name,ms}"},
      {"stages[].pooled_keys", "stage pool"},
      {"stages[].{routing_tiles,routing_tiles_scored}", "stage window"},
      {"stages[].scores", "stage score"},
      {"stages[].{heads,slots}", "stage top_n; slots in expand too"},
      {"stages[].picks, stages[].removed.{invalid,documents,future}",
       "stage legality"},
      {"stages[].{tile_rows,blocks,widest,capacity}", "stage union"},
      {"stages[].meaning", "stage expand"},
      {kPhasesFields, "where a gradient flows"},
      {"recall.{picks,found,recall,worst}", "with --recall"},
      {"plan.tiles.{active,full,partial,total,causal}, plan.{pairs,ms}",
       "where it was made; causal: of a plan with `causal` alone"},
      {"warnings"},
  };
  return kFields;
}

}  // namespace tessera::cli
