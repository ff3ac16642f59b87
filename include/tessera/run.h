// tessera/run.h: a request, end to end: planned, a lane chosen, run, and a
// receipt of what ran (docs/receipt.md).
//
//   auto ran = run_attention({request, facts, shape, tensors});
//   if (ran) save(ran->receipt);  // the outputs are in `tensors`
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/attention.h"
#include "tessera/bridge.h"
#include "tessera/dispatch.h"
#include "tessera/facts.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera {

struct RunCall {
  const Request& request;
  const Facts& facts;
  AttentionShape shape;
  ForwardTensors forward;
  // The gradients too, from the outputs of the forward pass: `out` and `lse`
  // must be those of `forward`.
  const BackwardTensors* backward = nullptr;
};

struct AttentionOptions {
  std::optional<LaneId> lane;    // that one or an error; absent: the rules
  std::vector<LaneId> fallback;  // that may step in, in order; empty: none
  CpuOptions cpu;
  // Plugin and method are the choice's where the rules chose the lane. Plugin,
  // device and cache are those of the jax_bridge lane too.
  XlaOptions xla;
  std::optional<BridgeArtifact> artifact;  // of the jax_bridge lane
  GateTable gate;
  std::optional<Machine> machine;  // absent: this one, looked at when needed
  bool input_digests = false;      // in the receipt; takes reading them all
};

struct AttentionRun {
  Plan plan;
  Choice choice;
  LaneId executed = LaneId::cpu;
  std::optional<std::string> fallback;  // why `executed` is not choice.lane
  // Counted by the lane: the reference has no tiles, and of a bridge's program
  // nothing can be counted.
  int64_t tiles_run = 0, tiles_skipped = 0, pairs_run = 0;
  std::string receipt;  // JSON
};

// Keeps what is worth keeping between calls: lanes that are open, with their
// compiled programs. One call at a time.
class AttentionRunner {
 public:
  explicit AttentionRunner(AttentionOptions options = {});
  AttentionRunner(AttentionRunner&&) noexcept;
  AttentionRunner& operator=(AttentionRunner&&) noexcept;
  ~AttentionRunner();

  Result<AttentionRun> run(const RunCall& call);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The same for one call.
Result<AttentionRun> run_attention(const RunCall& call,
                                   const AttentionOptions& options = {});

// Runs the call again, on the lane that the receipt says ran, and gives the
// fields that are not as the receipt says: of its form and digest, then of
// request, shape, contract, plan, counts and output. Empty: it is true.
Result<std::vector<std::string>> verify_run(
    const std::string& receipt, const RunCall& call,
    const AttentionOptions& options = {});

}  // namespace tessera
