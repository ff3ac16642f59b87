// lanes/cpu/cpu.h: the cpu lane: block-sparse flash attention, forward and
// backward, on the cores of this machine.
//
//   auto work = cpu_prepare(batch);                     // once a batch
//   auto ran = cpu_forward(*work, shape, tensors, {});  // once a layer
//
// Results are the same bits for any number of threads and in every run on one
// ISA; ISAs differ in the last bits.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/machine.h"
#include "tessera/result.h"

namespace tessera::cpu {

// What ran. Tiles and pairs are counted by the tasks that ran them.
struct CpuRun {
  Isa isa = Isa::portable;
  int threads = 1;            // allowed to work; short calls need fewer
  int64_t tiles_run = 0;      // active tiles of the plan, every head
  int64_t tiles_skipped = 0;  // empty tiles, every head
  int64_t pairs_run = 0;      // scores computed, legal or not, every head
};

// A plan prepared for this lane: the legal keys of each query, as intervals.
// O(q_len) for masks of intervals.
class CpuWork {
 public:
  CpuWork(CpuWork&&) noexcept;
  CpuWork& operator=(CpuWork&&) noexcept;
  ~CpuWork();

  struct State;
  State& state() const { return *state_; }
  explicit CpuWork(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

// The work keeps the batch. Borrowed facts are not read after this returns.
// `before`: work that is no longer needed; its memory is reused.
Result<CpuWork> cpu_prepare(const Batch& batch, const CpuOptions& options = {},
                            CpuWork* before = nullptr);

Result<CpuRun> cpu_forward(const CpuWork& work, const AttentionShape& shape,
                           const ForwardTensors& tensors,
                           const CpuOptions& options = {},
                           const StopFlag* stop = nullptr);

Result<CpuRun> cpu_backward(const CpuWork& work, const AttentionShape& shape,
                            const ForwardTensors& tensors,
                            const Gradients& gradients,
                            const CpuOptions& options = {},
                            const StopFlag* stop = nullptr);

}  // namespace tessera::cpu
