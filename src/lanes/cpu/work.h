// lanes/cpu/work.h: the state of a plan that is prepared for this lane.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "lanes/cpu/cpu.h"
#include "lanes/tensors.h"
#include "tessera/plan.h"

namespace tessera::cpu {

// Keys [begin, end).
struct KeySpan {
  int32_t begin = 0;
  int32_t end = 0;
};

struct DecodeMemory;

struct CpuWork::State {
  explicit State(const Batch& of)
      : batch(of),
        sizes{plan().batch, plan().q_len, plan().kv_len, plan().heads},
        tile(plan().tile),
        forward(plan().forward),
        transposed(plan().transposed) {}
  const Plan& plan() const { return batch.plan(); }
  void take_memory(State& before) {
    span_start = std::move(before.span_start);
    span_start.clear();
    spans = std::move(before.spans);
    spans.clear();
    decode_memory = std::move(before.decode_memory);
  }

  Batch batch;
  lanes::PlanSizes sizes;
  Tile tile;
  const Worklist& forward;
  const Worklist& transposed;
  // The legal keys of query q of list l are spans [span_start[l * q_len + q],
  // span_start[l * q_len + q + 1]), ascending and not touching.
  std::vector<int64_t> span_start;
  std::vector<KeySpan> spans;
  // Memory that decode() reuses from call to call.
  mutable std::mutex decode_mutex;
  mutable std::shared_ptr<DecodeMemory> decode_memory;

  std::span<const KeySpan> keys_of(int64_t list, int64_t q) const {
    const auto at = static_cast<size_t>(list * sizes.q_len + q);
    return {spans.data() + span_start[at],
            static_cast<size_t>(span_start[at + 1] - span_start[at])};
  }
  bool has_key(int64_t list, int64_t q) const {
    return !keys_of(list, q).empty();
  }
};

// The most spans of all queries: 1 GiB.
inline constexpr int64_t kMaxKeySpans = int64_t{1} << 27;

// Maps a query head to its K/V head and its plan head.
struct HeadMap {
  int64_t heads = 1, kv_heads = 1, plan_heads = 1;

  int64_t kv_head(int64_t h) const { return h / (heads / kv_heads); }
  int64_t plan_head(int64_t h) const { return h / (heads / plan_heads); }
};

// Refuses a negative or too large number of threads.
Result<void> check_options(const CpuOptions& options);
int threads_of(const CpuOptions& options);

}  // namespace tessera::cpu
