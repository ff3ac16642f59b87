// cli/route/report.h: the routing report, stage by stage, as text and JSON.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "receipt/receipt.h"
#include "request/attention_data.h"
#include "tessera/batch.h"
#include "tessera/route.h"

namespace tessera::cli {

struct RouteReport {
  Request request;
  std::string mask;    // as written
  std::string arrays;  // "8 heads (8 K/V), dim 128, f32", or ""
  std::string inputs;  // the source of q and k, or of the picks
  bool given = false;  // picks of another router were given; no scoring
  RouteStage until = RouteStage::expand;
  int threads = 1;
  RouteResult result;
  std::array<double, kRouteStages> ms{};
  std::optional<RouteRecall> recall;
  // Statistics of the plan, if one was made.
  std::optional<Statistics> plan;
  double plan_ms = 0;
  int64_t causal_tiles = 0;  // active tiles of a plan with only `causal`
};

std::vector<RouteStage> stages_run(const RouteReport& report);

std::string route_text(const RouteReport& report);
nlohmann::json route_json(const RouteReport& report);
std::span<const JsonField> route_json_fields();

std::string phases_text();

// Fields of a plan's picks: their meaning and their unions.
inline constexpr const char* kPicksFields =
    "picks.{meaning,block,heads,slots,picks}, "
    "picks.union.{query_tile,tile_rows,blocks,widest,capacity}, "
    "picks.keys.{needed,read}";
inline constexpr const char* kPhasesFields = "phases[].{name,stages,gradient}";
nlohmann::json picks_json(const receipt::Receipt::Routing& picks);

}  // namespace tessera::cli
