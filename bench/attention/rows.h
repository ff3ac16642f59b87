// bench/attention/rows.h: one row of `tessera-bench attention`: measurements,
// derived figures and output.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/harness/cases.h"
#include "bench/harness/peak/peak.h"
#include "bench/harness/times.h"
#include "receipt/receipt.h"
#include "tessera/machine.h"

namespace tessera::bench {

struct OurTimes {
  std::vector<double> ms;         // of every run
  double prepare_ms = 0;          // the least; every run includes one
  receipt::Receipt::Check check;  // of the last run, against fp64
  double other_cores = 0;
};

// Joins two measurements of the same row.
OurTimes joined(const OurTimes& a, const OurTimes& b);

struct PeerTimes {
  std::string peer;
  std::optional<RunTimes> times;
  double error = 0;
  std::string why;  // why there are no times
};

struct BenchRow {
  const AttentionCase* what = nullptr;
  Dtype dtype = Dtype::f32;
  Direction direction = Direction::forward;
  int64_t tokens = 0;
  int64_t head_dim = 0;
  int threads = 1;
  int64_t pairs = 0;  // legal pairs of one head
  Peaks peaks;
  std::optional<OurTimes> ours;
  std::string why;  // why `ours` is not measured
  std::vector<PeerTimes> peers;
  bool every_peer_ran = false;  // if not, the best peer may be missing
};

// The useful operations of the whole row in `ms`.
double gflops(const BenchRow& row, double ms);
// K and V, read once in `ms`: the measure of decode rows.
double gbytes(const BenchRow& row, double ms);
// Our share of the peak that bounds the row; empty if either is not measured.
std::optional<double> share_of_peak(const BenchRow& row);

const PeerTimes* best_peer(const BenchRow& row);
std::optional<double> ratio(const BenchRow& row);  // ours to the best peer
// Whether the row reached its goal. Empty if it has none, or if the goal is not
// missed so far but a peer or a peak is not measured.
std::optional<bool> reached(const BenchRow& row);

nlohmann::json row_json(const BenchRow& row);
std::string table_header();
std::string table_line(const BenchRow& row);

}  // namespace tessera::bench
