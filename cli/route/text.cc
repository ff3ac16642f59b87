// cli/route/text.cc: the routing report as text, one line for each stage.
#include <fmt/format.h>

#include "base/units.h"
#include "cli/route/report.h"

namespace tessera::cli {
namespace {

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

}  // namespace

std::vector<RouteStage> stages_run(const RouteReport& r) {
  std::vector<RouteStage> out;
  for (int i = 0; i < kRouteStages; ++i) {
    const auto stage = static_cast<RouteStage>(i);
    if (ran(r, stage)) out.push_back(stage);
  }
  return out;
}

std::string phases_text() {
  std::string out;
  for (const RoutePhase& p : route_phases()) {
    out += fmt::format("{}{} ({})", out.empty() ? "" : ", then ", p.name,
                       p.differentiable ? "differentiable" : "no gradient");
  }
  return out;
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
  for (const RouteStage stage : stages_run(r)) {
    const double ms = r.ms[static_cast<size_t>(stage)];
    sum += ms;
    timed(to_string(stage), ms, stage_text(r, stage));
  }
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

}  // namespace tessera::cli
