// bench/xla/measure.h: one problem, and contenders that compute it in turn.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/harness/cases.h"
#include "bench/xla/settings.h"
#include "receipt/receipt.h"
#include "request/attention_data.h"
#include "tessera/session.h"

namespace tessera::bench {

inline constexpr std::string_view kCpu = "cpu";

// The problem that all contenders of one table compute.
struct XlaProblem {
  const AttentionCase* what = nullptr;
  Dtype dtype = Dtype::f32;
  Direction direction = Direction::forward;
  std::optional<OwnedBatch> batch;
  request::AttentionData data;

  const Plan& plan() const { return batch->plan(); }

  double density() const {
    return static_cast<double>(plan().legal_pairs[0]) /
           static_cast<double>(data.q_len * data.kv_len);
  }
  double tile_density() const {
    return static_cast<double>(plan().forward.entries.size()) /
           static_cast<double>(plan().forward.rows * plan().forward.columns);
  }
};

// One way to compute a problem, and its times.
struct XlaContender {
  std::string name;  // "worklist"
  const Session* session = nullptr;
  std::vector<double> ms;
  double first_ms = 0;  // of the first run, with the compile
  receipt::Receipt::Check check;
  std::string why;  // why it did not run
};

// Fills in all of `problem` but what, dtype and direction.
Result<void> bind(XlaProblem& problem, const XlaSettings& settings);

// Runs and checks each contender once, then times all in turn, so that a
// machine that slows down favours none. Each timed run follows one that is not
// timed: after the gigabytes of a dense program, the next run of any contender
// takes up to twice as long. A contender that cannot run has only `why`.
Result<void> measure(XlaProblem& problem, std::vector<XlaContender>& contenders,
                     int64_t rounds);

}  // namespace tessera::bench
