// plan/batch_state.h: the state behind a Batch, for code that reads it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "mask/sweep.h"
#include "tessera/batch.h"

namespace tessera {

// `sweep` points into `request` and `facts`, so a State is never moved.
struct Batch::State {
  Request request;
  OwnedFacts owned;
  Facts facts;
  mask::Sweep sweep;  // bound facts and compiled masks
  Plan plan;
  double plan_ms = 0, route_ms = 0;
  std::optional<RouteResult> routing;
  bool given_picks = false;  // the caller gave the picks of `routing`
  // Digest of borrowed arrays as they were at planning.
  std::optional<uint64_t> digest;
  bool failed = false;  // a remake failed: the state holds no batch

  // Made once, at the first request for it.
  mutable std::mutex mutex;
  mutable std::optional<Result<PlanContract>> contract;
};

struct BatchMaker {
  // A second handle of the same batch. A remake of either handle leaves the
  // other's memory unchanged.
  static OwnedBatch share(const OwnedBatch& batch) {
    return OwnedBatch(batch.state_);
  }
  static OwnedBatch of_state(std::shared_ptr<Batch::State> state) {
    return OwnedBatch(std::move(state));
  }
  // A batch from lists that verify_forward accepted; nothing is planned again.
  static Result<OwnedBatch> of_verified(Request request, OwnedFacts facts,
                                        Plan plan);
};

namespace plan {

// The state of the batch, or an error if the facts changed since planning or a
// remake failed. `where` begins the error.
Result<const Batch::State*> read_batch(const Batch& batch,
                                       std::string_view where);
// make_contract() for a state that read_batch returned.
Result<PlanContract> contract_of(const Batch::State& batch);

}  // namespace plan

}  // namespace tessera
