// tessera/batch.h: one batch: a request, its facts and the plan that they make.
//
//   auto batch = OwnedBatch::make(request, std::move(facts));  // once a batch
//   auto batch = BorrowedBatch::make(request, facts);  // views: nothing copied
//   batch->remake(next_facts);                         // the next one
//
// The three are made together by one call and cannot be exchanged, so no plan
// ever meets the facts of another batch. Lanes, exporters, checks and pictures
// take a Batch and nothing looser.
#pragma once

#include <memory>

#include "tessera/facts.h"
#include "tessera/plan.h"
#include "tessera/result.h"
#include "tessera/route.h"

namespace tessera {

// A handle: copies are cheap and share what they name, which no one changes.
// Safe to read from any thread.
class Batch {
 public:
  const Request& request() const;
  const Facts& facts() const;
  const Plan& plan() const;
  double plan_ms() const;  // that binding and planning took

  // How its picks were found, where OwnedBatch::route made them; else null.
  const RouteResult* routing() const;
  double route_ms() const;

  struct State;
  const State& state() const { return *state_; }

 protected:
  explicit Batch(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

// Its facts are its own.
class OwnedBatch : public Batch {
 public:
  static Result<OwnedBatch> make(Request request, OwnedFacts facts);
  static Result<OwnedBatch> copy(Request request, const Facts& facts);
  // Routes first: the picks become facts. `inputs` are not kept.
  static Result<OwnedBatch> route(Request request, OwnedFacts facts,
                                  const RouteInputs& inputs,
                                  const RouteSettings& settings,
                                  const RouteOptions& options = {});

  // The next batch of the same request. A copy of this handle keeps the batch
  // that it names; the memory of one that nobody names any more serves again,
  // so that a loop that holds one batch while it makes the next takes two.
  // After an error there is no batch here until another remake succeeds: all
  // refuse it.
  Result<void> remake(OwnedFacts facts);

 private:
  friend struct BatchMaker;
  using Batch::Batch;
  std::shared_ptr<State> spare_;
};

// The arrays of its facts are the caller's and must outlive it. One that
// changed since is an error wherever the batch is used: it keeps a digest.
class BorrowedBatch : public Batch {
 public:
  static Result<BorrowedBatch> make(Request request, const Facts& facts);
  // As OwnedBatch::remake.
  Result<void> remake(const Facts& facts);

 private:
  using Batch::Batch;
  std::shared_ptr<State> spare_;
};

}  // namespace tessera
