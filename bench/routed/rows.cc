// bench/routed/rows.cc: derives ratios, shares and exponents, and writes them.
#include "bench/routed/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/dtype_word.h"
#include "bench/harness/times.h"

namespace tessera::bench {
namespace {

using nlohmann::json;

double part(int64_t a, int64_t b) {
  return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b);
}

RouteStage stage_at(int i) { return static_cast<RouteStage>(i); }

double stage_ms(const RoutedTimes& t, int i) {
  return t.stage[static_cast<size_t>(i)];
}

json times_json(const RoutedTimes& t, bool attended) {
  json stages = json::object();
  for (int i = 0; i < kRouteStages; ++i) {
    stages[std::string(to_string(stage_at(i)))] = stage_ms(t, i);
  }
  json out = {{"stages_ms", std::move(stages)},
              {"routing_ms", t.routing},
              {"plan_ms", t.plan}};
  if (attended) {
    out["prepare_ms"] = t.prepare;
    out["attention_ms"] = t.attention;
    out["whole_ms"] = t.whole();
  }
  return out;
}

json runs_json(const std::vector<RoutedTimes>& runs, bool attended) {
  json out = json::array();
  for (const RoutedTimes& t : runs) out.push_back(times_json(t, attended));
  return out;
}

std::string reached(bool yes) { return yes ? "reached" : "missed"; }

std::string peer_text(const RoutedPeer& p) {
  if (!p.measured()) {
    return fmt::format("  torch{:<14} not measured: {}\n",
                       p.way.empty() ? "" : ", " + p.way, p.why);
  }
  return fmt::format(
      "  torch, {:<12} {:>10.1f} ms  {:.1f} routing, {:.1f} attention; {:.2f} "
      "% of its picks are ours, outputs differ by {:.1g}\n",
      p.way, p.ms, p.route_ms, p.attend_ms, 100 * p.same_picks, p.error);
}

std::string exponent_text(const RoutedGrowth& g, bool hierarchical,
                          RoutedGrowth::Part of) {
  const auto x = g.exponent(hierarchical, of);
  return x ? fmt::format("{:>9.2f}", *x) : fmt::format("{:>9}", "-");
}

struct Column {
  const char* name;
  RoutedGrowth::Part of;
};

template <RouteStage kStage>
double of_stage(const RoutedTimes& t) {
  return t.stage[static_cast<size_t>(kStage)];
}

constexpr Column kColumns[] = {
    {"pool", of_stage<RouteStage::pool>},
    {"coarse", of_stage<RouteStage::coarse>},
    {"score", of_stage<RouteStage::score>},
    {"top_n", of_stage<RouteStage::top_n>},
    {"legality", of_stage<RouteStage::legality>},
    {"union", of_stage<RouteStage::unions>},
    {"expand", of_stage<RouteStage::expand>},
    {"plan", [](const RoutedTimes& t) { return t.plan; }},
    {"all", [](const RoutedTimes& t) { return t.planned(); }},
};

}  // namespace

const RoutedTimes& median_of(const std::vector<RoutedTimes>& runs) {
  std::vector<const RoutedTimes*> order;
  order.reserve(runs.size());
  for (const RoutedTimes& t : runs) order.push_back(&t);
  const auto middle =
      order.begin() + static_cast<std::ptrdiff_t>((order.size() - 1) / 2);
  std::nth_element(order.begin(), middle, order.end(),
                   [](const RoutedTimes* a, const RoutedTimes* b) {
                     return a->whole() < b->whole();
                   });
  return **middle;
}

double RoutedTable::dense() const {
  return times_of(dense_ms).median_ms * part(heads, dense_heads);
}

double RoutedTable::to_dense() const {
  return dense() / median_of(exhaustive).whole();
}

std::optional<double> RoutedTable::to_peer() const {
  const RoutedPeer* best = peer ? best_of(peer->ways) : nullptr;
  if (!best) return {};
  return best->ms / median_of(exhaustive).whole();
}

double RoutedTable::rate_to_dense() const {
  const RoutedTimes& t = median_of(exhaustive);
  return pairs / causal_pairs * dense() / (t.prepare + t.attention);
}

double RoutedTable::routing_share() const {
  return median_of(exhaustive).planned() / dense();
}

std::optional<double> RoutedGrowth::exponent(bool hierarchical, Part of) const {
  const Row* first = nullptr;
  const Row* last = nullptr;
  for (const Row& r : rows) {
    if (r.hierarchical != hierarchical) continue;
    if (!first) first = &r;
    last = &r;
  }
  if (!first || first->tokens == last->tokens) return {};
  const double a = of(first->times);
  const double b = of(last->times);
  // Too short to measure.
  if (a < 0.01 || b < 0.01) return {};
  return std::log(b / a) / std::log(part(last->tokens, first->tokens));
}

std::string table_text(const RoutedTable& t) {
  const RoutedTimes& all = median_of(t.exhaustive);
  const RoutedTimes& few = median_of(t.hierarchical);
  const double rows = static_cast<double>(t.counts.tile_rows);
  std::string out = fmt::format(
      "{} tokens, {}, top {}: {:.1f} % of the causal tiles, {:.1f} a row, "
      "{:.0f} % "
      "of them full; unions {:.2f} blocks on average, {} in the widest\n"
      "  {}\n"
      "  {:<18} {:>13}  {:>13}\n",
      t.tokens, dtype_word(t.dtype), t.top, 100 * t.density(),
      static_cast<double>(t.tiles) / rows, 100 * part(t.full_tiles, t.tiles),
      static_cast<double>(t.counts.union_blocks) / rows, t.widest, t.inputs, "",
      "exhaustive", "hierarchical");
  const auto line = [&](std::string_view name, double a, double b) {
    out += fmt::format("  {:<18} {:>10.1f} ms  {:>10.1f} ms\n", name, a, b);
  };
  for (int i = 0; i < kRouteStages; ++i) {
    line(to_string(stage_at(i)), stage_ms(all, i), stage_ms(few, i));
  }
  line("plan", all.plan, few.plan);
  line("routing, all this", all.planned(), few.planned());
  const auto one = [&](std::string_view name, double ms,
                       const std::string& more) {
    out += fmt::format("  {:<18} {:>10.1f} ms  {}\n", name, ms, more);
  };
  one("prepare", all.prepare, "");
  one("attention", all.attention,
      fmt::format("{:.0f} % of the dense rate of legal pairs, prepare counted",
                  100 * t.rate_to_dense()));
  one("whole", all.whole(),
      fmt::format("median of {} batches, which differ in q and k and so in "
                  "picks: {} plan contract{}",
                  t.exhaustive.size(), t.contracts.size(),
                  t.contracts.size() == 1 ? "" : "s"));
  one("dense causal", t.dense(),
      t.dense_heads == t.heads
          ? fmt::format("all {} heads", t.heads)
          : fmt::format("{} head{} timed, times {:g}", t.dense_heads,
                        t.dense_heads == 1 ? "" : "s",
                        part(t.heads, t.dense_heads)));
  if (t.peer) {
    for (const RoutedPeer& p : t.peer->ways) out += peer_text(p);
  }
  out += fmt::format("  {:.2f} times faster than dense causal: goal {:g} {}\n",
                     t.to_dense(), kGoalDense,
                     reached(t.to_dense() >= kGoalDense));
  if (const auto peer = t.to_peer()) {
    out += fmt::format("  {:.2f} times faster than PyTorch: goal {:g} {}\n",
                       *peer, kGoalPeer, reached(*peer >= kGoalPeer));
  }
  out += fmt::format(
      "  routing takes {:.1f} % of dense causal, hierarchical {:.1f} %: goal "
      "{:g} % {}\n",
      100 * t.routing_share(), 100 * few.planned() / t.dense(),
      100 * kGoalRouting, reached(t.routing_share() < kGoalRouting));
  out += fmt::format(
      "  hierarchical routing finds {:.1f} % of the exhaustive picks, {:.0f} % "
      "for the worst query\n",
      100 * t.recall.recall(), 100 * t.recall.worst);
  out += fmt::format("  {} rows against fp64: {:.2g} % of the error bound\n",
                     t.check.rows, 100 * t.check.max_ratio);
  if (t.other_cores >= 0.1) {
    out += fmt::format("  not quiet: other processes kept {:.1f} cores busy\n",
                       t.other_cores);
  }
  return out;
}

json table_json(const RoutedTable& t) {
  json out = {
      {"tokens", t.tokens},
      {"dtype", dtype_word(t.dtype)},
      {"top", t.top},
      {"inputs", t.inputs},
      {"density", t.density()},
      {"tiles", t.tiles},
      {"tiles_full", t.full_tiles},
      {"tiles_causal", t.causal_tiles},
      {"tile_rows", t.counts.tile_rows},
      {"picks", t.counts.picks},
      {"pairs", t.pairs},
      {"pairs_causal", t.causal_pairs},
      {"scores", t.counts.scores},
      {"union_blocks", t.counts.union_blocks},
      {"union_widest", t.widest},
      {"contracts", t.contracts.size()},
      {"exhaustive", times_json(median_of(t.exhaustive), true)},
      {"hierarchical", times_json(median_of(t.hierarchical), false)},
      {"runs", runs_json(t.exhaustive, true)},
      {"hierarchical_runs", runs_json(t.hierarchical, false)},
      {"recall", {{"mean", t.recall.recall()}, {"worst", t.recall.worst}}},
      {"hierarchical_tiles", t.hierarchical_tiles},
      {"dense",
       {{"ms", t.dense()},
        {"heads_timed", t.dense_heads},
        {"scaled", t.dense_heads != t.heads},
        {"runs", t.dense_ms}}},
      {"to_dense", t.to_dense()},
      {"rate_to_dense", t.rate_to_dense()},
      {"routing_share", t.routing_share()},
      {"check",
       {{"rows", t.check.rows},
        {"max_ratio", t.check.max_ratio},
        {"worst", t.check.worst},
        {"passed", t.check.passed()}}},
      {"other_cores", t.other_cores}};
  json goals = {{"to_dense", t.to_dense() >= kGoalDense},
                {"routing_share", t.routing_share() < kGoalRouting}};
  if (t.peer) {
    json ways = json::array();
    for (const RoutedPeer& p : t.peer->ways) ways.push_back(to_json(p));
    out["peers"] = std::move(ways);
    out["peer_versions"] = t.peer->versions;
  }
  if (const auto peer = t.to_peer()) {
    out["to_peer"] = *peer;
    goals["to_peer"] = *peer >= kGoalPeer;
  }
  out["reached"] = std::move(goals);
  return out;
}

std::string growth_text(const RoutedGrowth& g) {
  std::string out = fmt::format(
      "Growth of routing, {}, top {}, expanded to unions, ms; the last line of "
      "each "
      "is x of tokens^x\n  {:<21}",
      dtype_word(g.dtype), g.top, "");
  for (const Column& c : kColumns) out += fmt::format("{:>9}", c.name);
  out += "\n";
  for (const bool hierarchical : {false, true}) {
    const char* name = hierarchical ? "hierarchical" : "exhaustive";
    for (const RoutedGrowth::Row& r : g.rows) {
      if (r.hierarchical != hierarchical) continue;
      out += fmt::format("  {:<12} {:>8}", name, r.tokens);
      for (const Column& c : kColumns) {
        out += fmt::format("{:>9.1f}", c.of(r.times));
      }
      out += "\n";
    }
    out += fmt::format("  {:<12} {:>8}", name, "x");
    for (const Column& c : kColumns)
      out += exponent_text(g, hierarchical, c.of);
    out += "\n";
  }
  return out;
}

json growth_json(const RoutedGrowth& g) {
  json rows = json::array();
  for (const RoutedGrowth::Row& r : g.rows) {
    json row = times_json(r.times, false);
    row["tokens"] = r.tokens;
    row["hierarchical"] = r.hierarchical;
    rows.push_back(std::move(row));
  }
  json exponents = json::object();
  for (const bool hierarchical : {false, true}) {
    json& of = exponents[hierarchical ? "hierarchical" : "exhaustive"];
    of = json::object();
    for (const Column& c : kColumns) {
      if (const auto x = g.exponent(hierarchical, c.of)) of[c.name] = *x;
    }
  }
  return {{"top", g.top},
          {"dtype", dtype_word(g.dtype)},
          {"meaning", "union"},
          {"rows", std::move(rows)},
          {"exponents", std::move(exponents)}};
}

}  // namespace tessera::bench
