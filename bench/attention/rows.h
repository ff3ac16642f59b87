// bench/attention/rows.h: what one row of `tessera-bench attention` measured,
// what follows from it, and how it is written.
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
  double prepare_ms = 0;          // least; it is part of every run
  receipt::Receipt::Check check;  // of the last run, against fp64
  double other_cores = 0;
};

// Both of the same row, measured at different times.
OurTimes joined(const OurTimes& a, const OurTimes& b);

struct PeerTimes {
  std::string peer;
  std::optional<RunTimes> times;
  double error = 0;
  std::string why;  // there are no times
};

struct BenchRow {
  const AttentionCase* what = nullptr;
  Dtype dtype = Dtype::f32;
  Direction direction = Direction::forward;
  int64_t tokens = 0;
  int64_t head_dim = 0;
  int threads = 1;
  int64_t pairs = 0;  // legal ones, of one head
  Peaks peaks;
  std::optional<OurTimes> ours;
  std::string why;  // ours is not measured
  std::vector<PeerTimes> peers;
  bool every_peer_ran = false;  // else a better one may be missing
};

// Useful operations of the whole row, over this time.
double gflops(const BenchRow& row, double ms);
// K and V read once over this time: what a decode row is about.
double gbytes(const BenchRow& row, double ms);
// Of the peak that bounds the row; nothing where either is not measured.
std::optional<double> share_of_peak(const BenchRow& row);

const PeerTimes* best_peer(const BenchRow& row);
std::optional<double> ratio(const BenchRow& row);  // ours to the best peer
// Nothing where the row has no goal, or where it was not missed but a peer or a
// peak is not measured.
std::optional<bool> reached(const BenchRow& row);

nlohmann::json row_json(const BenchRow& row);
std::string table_header();
std::string table_line(const BenchRow& row);

}  // namespace tessera::bench
