// lanes/cpu/call.h: what forward and backward calls have in common.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>

#include "lanes/cpu/work.h"
#include "tessera/attention.h"
#include "tessera/cpu.h"

namespace tessera {

// The last variant that the ISA and the dtype allow.
template <class Variant>
const Variant& variant_for(std::span<const Variant> all, Dtype dtype, Isa isa) {
  const Variant* best = &all.front();
  for (const Variant& v : all) {
    if (v.isa <= isa && (!v.bf16_only || dtype == Dtype::bf16)) best = &v;
  }
  return *best;
}

inline float scale_of(const AttentionShape& shape) {
  return static_cast<float>(
      shape.scale.value_or(1 / std::sqrt(static_cast<double>(shape.head_dim))));
}

// Where a row of a tensor begins.
template <class Pointer>
Pointer element(const BasicTensorView<Pointer>& t, int64_t b, int64_t h,
                int64_t token) {
  constexpr bool kConst = std::is_const_v<std::remove_pointer_t<Pointer>>;
  using Byte = std::conditional_t<kConst, const char, char>;
  const int64_t at =
      b * t.batch_stride + h * t.head_stride + token * t.token_stride;
  return static_cast<Byte*>(t.data) + at * byte_width(t.dtype);
}

// The tiles of a list, for all heads of a call.
inline CpuRun count_tiles(const Worklist& list, const AttentionShape& shape,
                          const PlanSizes& sizes) {
  const int64_t group = shape.heads / sizes.heads;
  CpuRun run;
  run.tiles_run = static_cast<int64_t>(list.entries.size()) * group;
  run.tiles_skipped =
      list.lists * list.rows * list.columns * group - run.tiles_run;
  return run;
}

}  // namespace tessera
