// cli/route/report.cc: a line for each stage: time and counts.
#include "cli/route/report.h"

#include <fmt/format.h>

#include "cli/plan/report.h"
#include "receipt/parts.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

bool ran(const RouteReport& r, RouteStage stage) {
  if (stage > r.until) return false;
  if (r.given && stage < RouteStage::legality) return false;
  return stage != RouteStage::coarse || r.result.settings.hierarchical;
}

double part(int64_t a, int64_t b) {
  return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b);
}

std::string stage_text(const RouteReport& r, RouteStage stage) {
  const RouteSettings& s = r.result.settings;
  const RouteCounts& c = r.result.counts;
  const PickUnions& u = r.result.unions;
  switch (stage) {
    case RouteStage::pool:
      return fmt::format("{} pooled keys of {} keys each, {} apart",
                         c.pooled_keys, s.compression, s.stride);
    case RouteStage::window:
      return fmt::format(
          "{} of {} routing tiles of {} x {} to score; {} are from the future",
          c.routing_tiles_scored, c.routing_tiles, s.query_tile, s.kv_tile,
          c.routing_tiles - c.routing_tiles_scored);
    case RouteStage::coarse:
      return fmt::format("{} of groups of {} blocks are kept for each query",
                         s.top_metas, s.meta_ratio);
    case RouteStage::score:
      return fmt::format("{} scores in fp32",
                         with_unit(static_cast<double>(c.scores)));
    case RouteStage::top_n:
      return fmt::format("{} at most for each query, {} heads pick", s.top,
                         r.result.heads);
    case RouteStage::legality:
      return fmt::format(
          "{} picks are left; removed: {} invalid, {} across documents, {} "
          "from the future",
          c.picks, c.removed_invalid, c.removed_documents, c.removed_future);
    case RouteStage::unions:
      return fmt::format(
          "{} tile rows of {} queries: {:.2f} blocks on average, {} in the "
          "widest, capacity {}",
          c.tile_rows, s.query_tile, part(c.union_blocks, c.tile_rows),
          u.widest, u.capacity);
    case RouteStage::expand:
      return fmt::format("{}: {} slots a query", to_string(s.meaning),
                         r.result.run_k);
  }
  return "";
}

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

template <class Visit>
void each_stage(const RouteReport& r, Visit&& visit) {
  for (int i = 0; i < kRouteStages; ++i) {
    const auto stage = static_cast<RouteStage>(i);
    if (ran(r, stage)) visit(stage);
  }
}

}  // namespace

std::string phases_text() {
  std::string out;
  for (const RoutePhase& p : route_phases()) {
    out += fmt::format("{}{} ({})", out.empty() ? "" : ", then ", p.name,
                       p.differentiable ? "differentiable" : "no gradient");
  }
  return out;
}

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

std::string picks_text(const receipt::Receipt::Routing& p) {
  return fmt::format(
      "{}: {} of blocks of {} keys, {} head{} pick; unions of {:.2f} blocks a "
      "tile row, {} in the widest, capacity {}; {} keys read by tile rows that "
      "need {}",
      to_string(p.settings.meaning), p.picks, p.settings.block, p.heads,
      p.heads == 1 ? "" : "s", part(p.union_blocks, p.tile_rows),
      p.widest_union, p.union_capacity, p.read_keys, p.needed_keys);
}

std::string route_text(const RouteReport& r) {
  const RouteSettings& s = r.result.settings;
  std::string out;
  const auto line = [&](std::string_view name, const std::string& text) {
    out += fmt::format("{:<11} {}\n", name, text);
  };
  const auto timed = [&](std::string_view name, double ms,
                         const std::string& text) {
    out += fmt::format("{:<11} {:>9.3f} ms  {}\n", name, ms, text);
  };
  line("mask", r.mask);
  line("tokens", fmt::format("{} queries x {} keys, {} batch row{}{}{}",
                             r.request.q_len, r.request.kv_len, r.request.batch,
                             r.request.batch == 1 ? "" : "s",
                             r.arrays.empty() ? "" : ", ", r.arrays));
  line("inputs", r.inputs);
  if (!r.given) {
    line(
        "rule",
        fmt::format(
            "{}, top {} of blocks of {}{}{}", to_string(s.rule), s.top, s.block,
            s.sink_blocks > 0 ? fmt::format(", {} sink", s.sink_blocks) : "",
            s.hierarchical ? ", hierarchical" : ""));
  }
  double sum = 0;
  each_stage(r, [&](RouteStage stage) {
    const double ms = r.ms[static_cast<size_t>(stage)];
    sum += ms;
    timed(to_string(stage), ms, stage_text(r, stage));
  });
  timed("routing", sum,
        fmt::format("together, on {} thread{}", r.threads,
                    r.threads == 1 ? "" : "s"));
  if (r.recall) {
    line("recall",
         fmt::format("{:.4f} of exhaustive routing ({} of {} picks), {:.3f} "
                     "for the worst query",
                     r.recall->recall(), r.recall->found, r.recall->picks,
                     r.recall->worst));
  }
  if (!r.plan) return out;
  timed("plan", r.plan_ms,
        fmt::format("{} tiles of {} x {}, {} full, {} partial: {:.1f} % of the "
                    "causal ones",
                    r.plan->tiles_active, r.request.tile.q, r.request.tile.kv,
                    r.plan->tiles_full, r.plan->tiles_partial,
                    100 * part(r.plan->tiles_active, r.causal_tiles)));
  line("phases", phases_text());
  return out;
}

json route_json(const RouteReport& r) {
  const RouteSettings& s = r.result.settings;
  json stages = json::array();
  each_stage(r,
             [&](RouteStage stage) { stages.push_back(stage_json(r, stage)); });
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

}  // namespace tessera::cli
