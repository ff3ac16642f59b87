// run/session_state.h: the state of sessions and prepared batches.
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
  std::span<const lanes::Lane> lanes;  // all that may be opened
  std::mutex mutex;                    // guards the members below
  std::optional<Machine> machine;
  // Open lanes, keyed by lane, plugin and method.
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
  Machine machine;                 // as the choice saw it
  std::vector<LaneId> candidates;  // the chosen lane, then the fallbacks
  size_t at = 0;                   // index of the candidate that is prepared
  std::vector<run::FailedLane> failed;  // candidates before `at`, in order
  lanes::LaneOptions options;           // that the lane is opened with
  std::shared_ptr<lanes::OpenLane> lane;
  bool flushes = false;  // the lane reads and writes subnormal numbers as 0
  std::unique_ptr<lanes::LaneWork> work;
  Counters counters;
  double prepare_transfer_ms = 0, forward_transfer_ms = 0,
         backward_transfer_ms = 0;
  uint64_t id = 0;  // new at each start of a lane; Saved, DeviceArray have it
  bool went_back = false;  // a backward pass ran after the latest forward one

  // "xla did not start: ...", or nothing.
  std::optional<std::string> fallback() const;
};

namespace run {

// Refuses an order with a lane that this version does not have, that computes
// what its artifact holds instead of the request, or that is listed twice.
Result<void> check_fallback(std::span<const LaneId> order);

// A session of these lanes; tests pass lanes that fail.
Result<Session> open_session(SessionOptions options,
                             std::span<const lanes::Lane> lanes);

// The lane that the options name, opened.
Result<std::shared_ptr<lanes::OpenLane>> open_named(Session::State& s);

// Refuses a lowering reason that the named lane cannot use. With fallbacks or
// no named lane it is accepted, since another lane may use it.
Result<void> check_reason(const SessionOptions& o, const lanes::OpenLane& lane);

Result<void> check_prepared(const Prepared::State& p);
Result<void> check_says_backward(const Prepared::State& p);
void count_forward(Prepared::State& p, const lanes::PassRun& ran);
void count_backward(Prepared::State& p, const lanes::PassRun& ran);

// The receipt of the latest passes, not sealed. The caller may add who asked,
// the request as it was typed and the files of its arrays.
Result<receipt::Receipt> make_receipt(const Prepared& prepared,
                                      const Saved& saved,
                                      const Gradients* gradients,
                                      const SinkTelemetry* sinks);

}  // namespace run

}  // namespace tessera
