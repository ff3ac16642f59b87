// bench/routed/rows.h: results of `tessera-bench routed`: measurements, derived
// figures and output.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/routed/case.h"
#include "bench/routed/peer.h"

namespace tessera::bench {

// Goals of a whole routed call.
inline constexpr double kGoalDense = 5;       // times faster than dense causal
inline constexpr double kGoalPeer = 3;        // times faster than the peer
inline constexpr double kGoalRouting = 0.06;  // share of dense causal's time

// Results for one length and dtype.
struct RoutedTable {
  Dtype dtype = Dtype::f32;
  int64_t tokens = 0, top = 0, heads = 0;
  std::string inputs;
  // Of the first batch.
  RouteCounts counts;
  int64_t widest = 0;
  int64_t tiles = 0, full_tiles = 0, causal_tiles = 0;
  double pairs = 0, causal_pairs = 0;  // legal pairs of all query heads
  // Of every batch, in turn.
  std::vector<RoutedTimes> exhaustive, hierarchical;
  std::vector<double> dense_ms;
  int64_t dense_heads = 0;  // that were timed
  RouteRecall recall;       // of hierarchical routing, all batches
  int64_t hierarchical_tiles = 0;
  std::set<std::string> contracts;  // keys
  reference::Verdict check;
  std::optional<RoutedPeerRun> peer;
  double other_cores = 0;

  double density() const {
    return static_cast<double>(tiles) / static_cast<double>(causal_tiles);
  }
  double dense() const;     // ms of all heads; scaled if not all were timed
  double to_dense() const;  // how many times faster the whole call is
  std::optional<double> to_peer() const;
  // Legal pairs a second of prepare and attention, relative to dense.
  double rate_to_dense() const;
  double routing_share() const;  // of stages and plan in dense()
};

// The run with the median time of the whole call.
const RoutedTimes& median_of(const std::vector<RoutedTimes>& runs);

// Routing alone at several lengths with one `top`.
struct RoutedGrowth {
  struct Row {
    int64_t tokens = 0;
    bool hierarchical = false;
    RoutedTimes times;
  };
  Dtype dtype = Dtype::f32;
  int64_t top = 0;
  std::vector<Row> rows;

  // x if a time grows as tokens^x from the shortest to the longest length;
  // empty if there is one length, or a time is too short to measure.
  using Part = double (*)(const RoutedTimes&);
  std::optional<double> exponent(bool hierarchical, Part part) const;
};

std::string table_text(const RoutedTable& table);
nlohmann::json table_json(const RoutedTable& table);
std::string growth_text(const RoutedGrowth& growth);
nlohmann::json growth_json(const RoutedGrowth& growth);

}  // namespace tessera::bench
