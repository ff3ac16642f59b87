// lanes/xla/lane.h: the xla lane: attention as a StableHLO program that any
// PJRT plugin compiles and runs, forward and backward (docs/xla.md).
//
//   auto lane = XlaLane::open({});            // once
//   auto work = lane->prepare(batch, call);   // once a batch
//   auto ran = work->forward(tensors);        // once a layer
//
// The worklist, ids, counts, offsets, picks and exact window bounds are inputs
// of the program, so one program serves every batch of its kernel contract.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lanes/resident.h"
#include "lanes/sink_rows.h"
#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/machine.h"
#include "tessera/result.h"

namespace tessera::xla {

// What ran. With the worklist method the program itself counts tiles.
struct XlaRun : CompileCounts {
  KernelContract contract;
  std::optional<Lowering> lowering;  // on a TPU
  int64_t tiles_run = 0;             // active tiles, every head
  int64_t tiles_skipped = 0;
  int64_t pairs_run = 0;  // scores computed, legal or not, every head
  double compile_ms = 0, transfer_ms = 0, run_ms = 0;
  std::vector<std::string> warnings;  // of the cache on disk
};

// The compiled programs of one batch, with its integers on the device. A call
// sends its arrays, runs and reads the results. Safe from any thread.
class XlaWork {
 public:
  XlaWork(XlaWork&&) noexcept;
  XlaWork& operator=(XlaWork&&) noexcept;
  ~XlaWork();

  // What preparing a direction did; null if it was not prepared.
  const XlaRun* prepared(bool backward) const;
  const XlaRun* prepared_sinks() const;
  Result<XlaRun> forward(const ForwardTensors& tensors,
                         const StopFlag* stop = nullptr) const;
  // Runs a separate program: the program of `forward` does not change.
  Result<lanes::SinkRows> sink_rows(const ForwardTensors& tensors,
                                    int64_t first_keys,
                                    const StopFlag* stop = nullptr) const;
  Result<XlaRun> backward(const ForwardTensors& tensors,
                          const Gradients& gradients,
                          const StopFlag* stop = nullptr) const;
  // The same passes over arrays that stay on the device (lanes/resident.h).
  Result<XlaRun> forward(lanes::ResidentForward& pass,
                         const StopFlag* stop) const;
  Result<XlaRun> backward(lanes::ResidentBackward& pass,
                          const StopFlag* stop) const;
  Result<lanes::ResidentPtr> put(const TensorView& t, bool queries) const;
  Result<void> fetch(const lanes::Resident& array,
                     const MutableTensorView& to) const;
  Result<std::string> program_text(bool backward) const;

  struct State;
  explicit XlaWork(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

class XlaLane {
 public:
  // Fails with kind `unavailable` if there is no such plugin or device, or the
  // build cannot load plugins.
  static Result<XlaLane> open(const XlaOptions& options);
  XlaLane(XlaLane&&) noexcept;
  XlaLane& operator=(XlaLane&&) noexcept;
  ~XlaLane();

  const PluginPlace& place() const;

  // Prepares the forward program, and those of the backward pass and of sink
  // telemetry if the call has them. Safe from any thread.
  Result<XlaWork> prepare(const Batch& batch, const AttentionCall& call) const;

  // Prepares and runs one pass of one batch.
  Result<XlaRun> forward(const Batch& batch, const AttentionShape& shape,
                         const ForwardTensors& tensors) const;
  Result<XlaRun> backward(const Batch& batch, const AttentionShape& shape,
                          const ForwardTensors& tensors,
                          const Gradients& gradients) const;

  // Compiles what a batch under the request's ceilings will need in the
  // direction of the call, so that its first call need not compile. Only which
  // facts `present` has is read.
  Result<XlaRun> warm(const Request& request, const Facts& present,
                      const AttentionCall& call) const;
  // The same for the program of the call's sink telemetry.
  Result<XlaRun> warm_sinks(const Request& request, const Facts& present,
                            const AttentionCall& call) const;

  struct State;

 private:
  explicit XlaLane(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace tessera::xla
