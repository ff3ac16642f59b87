// run/session_state.h: what sessions hold, for those that read it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lanes/lane.h"
#include "receipt/receipt.h"
#include "tessera/batch.h"
#include "tessera/session.h"

namespace tessera {

namespace run {

struct FailedLane {
  LaneId lane;
  std::string why;
};

}  // namespace run

struct Session::State {
  SessionOptions options;
  std::span<const lanes::Lane> lanes;  // that there are
  std::mutex mutex;                    // of what follows
  std::optional<Machine> machine;
  // Open lanes by what they were opened with.
  using Key = std::tuple<LaneId, std::string, XlaMethod>;
  std::map<Key, std::shared_ptr<lanes::OpenLane>> open;
};

struct Prepared::State {
  State(std::shared_ptr<Session::State> in, const Batch& of)
      : session(std::move(in)), batch(of) {}

  std::shared_ptr<Session::State> session;
  Batch batch;
  AttentionCall call;
  RequestFeatures features;
  Choice choice;
  Machine machine;  // as the choice saw it
  std::vector<LaneId>
      candidates;  // the chosen one, then those that may step in
  size_t at = 0;   // of the candidate that is prepared
  std::vector<run::FailedLane> failed;  // before it, in order
  lanes::LaneOptions options;           // it was opened with
  std::shared_ptr<lanes::OpenLane> lane;
  bool flushes = false;  // the lane takes and gives 0 for subnormal numbers
  std::unique_ptr<lanes::LaneWork> work;
  Counters counters;
  double prepare_transfer_ms = 0, forward_transfer_ms = 0,
         backward_transfer_ms = 0;
  uint64_t id = 0;  // of Saved and arrays that stay; of each start of a lane
  bool went_back = false;  // a backward pass ran after the latest forward one

  // "xla did not start: ...", or nothing.
  std::optional<std::string> fallback() const;
};

namespace run {

// Refuses an order with a lane that does not run, that computes something else
// than the request means, or that stands there twice.
Result<void> check_fallback(std::span<const LaneId> order);

// A session of these lanes, for tests of what happens when one fails.
Result<Session> open_session(SessionOptions options,
                             std::span<const lanes::Lane> lanes);

Result<void> check_prepared(const Prepared::State& p);
Result<void> check_says_backward(const Prepared::State& p);
void count_forward(Prepared::State& p, const lanes::PassRun& ran);
void count_backward(Prepared::State& p, const lanes::PassRun& ran);

// The receipt of the latest passes, before it is text. The caller may add who
// asked, the words of the request and where its arrays are from.
Result<receipt::Receipt> make_receipt(const Prepared& prepared,
                                      const Saved& saved,
                                      const Gradients* gradients,
                                      const SinkTelemetry* sinks);

}  // namespace run

}  // namespace tessera
