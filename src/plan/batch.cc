// plan/batch.cc: makes request, facts, bound form and plan together.
#include "tessera/batch.h"

#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/fail.h"
#include "base/timed.h"
#include "plan/batch_state.h"
#include "plan/stoppable.h"
#include "route/stoppable.h"

namespace tessera {
namespace {

using State = Batch::State;

// Digest of the current contents of the facts' arrays.
uint64_t digest_of(const Facts& f) {
  uint64_t digest = 0;
  const auto add = [&](const std::optional<Ints>& values) {
    const uint64_t size = values ? values->size() : UINT64_MAX;
    digest = XXH3_64bits_withSeed(&size, sizeof size, digest);
    if (values) {
      digest =
          XXH3_64bits_withSeed(values->data(), values->size_bytes(), digest);
    }
  };
  add(f.doc_ids);
  add(f.q_doc_ids);
  add(f.valid_token_counts);
  add(f.valid_slot_counts);
  add(f.prefix_lengths);
  add(f.q_offsets);
  add(f.picks ? std::optional<Ints>(f.picks->blocks) : std::nullopt);
  add(f.tree_enter);
  add(f.tree_leave);
  for (const auto& ids : f.same_ids) {
    if (ids) add(ids);
  }
  return digest;
}

// Binds `state.facts` and plans. A sweep that was started before is bound
// again, even if its batch failed later.
Result<void> plan_state(State& state, const Stopped& stopped = {}) {
  state.failed = true;
  state.contract.reset();
  state.plan_ms = 0;
  auto planned = timed(state.plan_ms, [&]() -> Result<void> {
    if (!state.sweep.programs.empty()) {
      auto bound = mask::bind_again(state.request, state.facts, state.sweep);
      if (!bound) return bound;
    } else {
      auto sweep = mask::start_sweep(state.request, state.facts);
      if (!sweep) return sweep.error();
      state.sweep = std::move(*sweep);
    }
    return plan::plan_sweep(state.sweep, state.plan, stopped);
  });
  if (planned) state.failed = false;
  return planned;
}

// Whether `state` is the only owner. Then no other thread can gain a reference.
// use_count() does not synchronize with a reader on another thread that dropped
// its reference; the copy and its release do, so the reader's accesses happen
// before the caller's writes.
bool is_own(const std::shared_ptr<State>& state) {
  if (state.use_count() != 1) return false;
  std::shared_ptr<State>(state).reset();
  return true;
}

// Makes `state` one to plan the next batch into: this state or the spare one if
// it has no other owner, else a new state of the same request.
void make_own(std::shared_ptr<State>& state, std::shared_ptr<State>& spare) {
  if (is_own(state)) return;
  std::swap(state, spare);
  if (state && is_own(state)) return;
  state = std::make_shared<State>();
  state->request = spare->request;
}

}  // namespace

Batch::Batch(std::shared_ptr<State> state) : state_(std::move(state)) {}

const Request& Batch::request() const { return state_->request; }
const Facts& Batch::facts() const { return state_->facts; }
const Plan& Batch::plan() const { return state_->plan; }
double Batch::plan_ms() const { return state_->plan_ms; }
double Batch::route_ms() const { return state_->route_ms; }
const RouteResult* Batch::routing() const {
  return state_->routing ? &*state_->routing : nullptr;
}

Result<OwnedBatch> OwnedBatch::make(Request request, OwnedFacts facts) {
  return plan::make_batch(std::move(request), std::move(facts), {});
}

Result<OwnedBatch> plan::make_batch(Request request, OwnedFacts facts,
                                    const Stopped& stopped) {
  auto state = std::make_shared<State>();
  state->request = std::move(request);
  state->owned = std::move(facts);
  state->facts = state->owned.view();
  if (auto e = plan_state(*state, stopped); !e) return e.error();
  return BatchMaker::of_state(std::move(state));
}

Result<OwnedBatch> OwnedBatch::copy(Request request, const Facts& facts) {
  return make(std::move(request), own_facts(facts));
}

Result<OwnedBatch> OwnedBatch::route(Request request, OwnedFacts facts,
                                     const RouteInputs& inputs,
                                     const RouteSettings& settings,
                                     const RouteOptions& options) {
  return plan::route_batch(std::move(request), std::move(facts), inputs,
                           settings, options, {});
}

Result<OwnedBatch> plan::route_batch(Request request, OwnedFacts facts,
                                     const RouteInputs& inputs,
                                     const RouteSettings& settings,
                                     const RouteOptions& options,
                                     const Stopped& stopped) {
  if (options.until != RouteStage::expand) {
    return invalid("route", "a batch is routed to its last stage, found {}",
                   to_string(options.until));
  }
  double route_ms = 0;
  auto routed = timed(route_ms, [&] {
    return routing::route(request, facts.view(), inputs, settings, options,
                          stopped);
  });
  if (!routed) return routed.error();
  auto state = std::make_shared<State>();
  state->request = std::move(request);
  state->owned = std::move(facts);
  state->owned.picks.reset();
  state->routing = std::move(*routed);
  state->route_ms = route_ms;
  state->given_picks = inputs.picks || inputs.tile_picks;
  state->facts = state->routing->facts(state->owned.view());
  if (auto e = plan_state(*state, stopped); !e) return e.error();
  return BatchMaker::of_state(std::move(state));
}

Result<void> OwnedBatch::remake(OwnedFacts facts) {
  make_own(state_, spare_);
  state_->owned = std::move(facts);
  state_->facts = state_->owned.view();
  state_->routing.reset();
  state_->route_ms = 0;
  return plan_state(*state_);
}

Result<BorrowedBatch> BorrowedBatch::make(Request request, const Facts& facts) {
  auto state = std::make_shared<State>();
  state->request = std::move(request);
  state->facts = facts;
  if (auto e = plan_state(*state); !e) return e.error();
  state->digest = digest_of(facts);
  return BorrowedBatch(std::move(state));
}

Result<void> BorrowedBatch::remake(const Facts& facts) {
  make_own(state_, spare_);
  state_->facts = facts;
  if (auto e = plan_state(*state_); !e) return e;
  state_->digest = digest_of(facts);
  return {};
}

Result<const State*> plan::read_batch(const Batch& batch,
                                      std::string_view where) {
  const State& state = batch.state();
  if (state.failed) {
    return invalid(where, "a batch must be there, found a remake that failed");
  }
  if (state.digest && *state.digest != digest_of(state.facts)) {
    return invalid(where,
                   "facts must be as they were planned, found others (remake "
                   "the batch when its facts change)");
  }
  return &state;
}

Result<OwnedBatch> BatchMaker::of_verified(Request request, OwnedFacts facts,
                                           Plan plan) {
  auto state = std::make_shared<State>();
  state->request = std::move(request);
  state->owned = std::move(facts);
  state->facts = state->owned.view();
  auto sweep = mask::start_sweep(state->request, state->facts);
  if (!sweep) return sweep.error();
  state->sweep = std::move(*sweep);
  state->plan = std::move(plan);
  return OwnedBatch(std::move(state));
}

}  // namespace tessera
