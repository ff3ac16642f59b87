// plan/batch_state.h: what a Batch holds, for those that read it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "mask/sweep.h"
#include "tessera/batch.h"

namespace tessera {

// `sweep` points into `request` and `facts`, so a state never moves.
struct Batch::State {
  Request request;
  OwnedFacts owned;
  Facts facts;
  mask::Sweep sweep;  // the facts bound, the masks compiled
  Plan plan;
  double plan_ms = 0, route_ms = 0;
  std::optional<RouteResult> routing;
  bool given_picks = false;  // `routing` did not score them, they came in
  // Of borrowed arrays, as they were planned.
  std::optional<uint64_t> digest;
  bool failed = false;  // no batch is here: a remake failed

  // Made when it is first asked for, once.
  mutable std::mutex mutex;
  mutable std::optional<Result<PlanContract>> contract;
};

struct BatchMaker {
  // A handle of the same batch, whose remake has no part in the other's memory.
  static OwnedBatch share(const OwnedBatch& batch) {
    return OwnedBatch(batch.state_);
  }
  static OwnedBatch of_state(std::shared_ptr<Batch::State> state) {
    return OwnedBatch(std::move(state));
  }
  // A batch of lists that verify_forward took, which need not be made again.
  static Result<OwnedBatch> of_verified(Request request, OwnedFacts facts,
                                        Plan plan);
};

namespace plan {

// The state, where it is what was planned: `where` begins the error of facts
// that changed under the plan and of a remake that failed.
Result<const Batch::State*> read_batch(const Batch& batch,
                                       std::string_view where);
// make_contract() of a batch that was read.
Result<PlanContract> contract_of(const Batch::State& batch);

}  // namespace plan

}  // namespace tessera
