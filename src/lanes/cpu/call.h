// lanes/cpu/call.h: what forward and backward calls have in common.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/integers.h"
#include "lanes/cpu/cpu.h"
#include "lanes/cpu/work.h"
#include "tessera/attention.h"

namespace tessera::cpu {

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
  return static_cast<float>(shape.scale_or_default());
}

// The address of a row of a tensor.
template <class Pointer>
Pointer element(const BasicTensorView<Pointer>& t, int64_t b, int64_t h,
                int64_t token) {
  constexpr bool kConst = std::is_const_v<std::remove_pointer_t<Pointer>>;
  using Byte = std::conditional_t<kConst, const char, char>;
  const int64_t at =
      b * t.batch_stride + h * t.head_stride + token * t.token_stride;
  return static_cast<Byte*>(t.data) + at * byte_width(t.dtype);
}

// Tile counts of a call: `tiles_run`, and the rest of the tiles of all heads.
inline CpuRun count_tiles(int64_t tiles_run, const Worklist& list,
                          const AttentionShape& shape,
                          const lanes::PlanSizes& sizes) {
  CpuRun run;
  run.tiles_run = tiles_run;
  run.tiles_skipped =
      list.lists * list.rows * list.columns * (shape.heads / sizes.heads) -
      tiles_run;
  return run;
}

// The active tiles of rows, of `step` tokens each, that begin in [begin, end).
inline int64_t tiles_of(const Worklist& list, int64_t number, int64_t step,
                        int64_t begin, int64_t end) {
  int64_t tiles = 0;
  for (int64_t r = ceil_div(begin, step); r < ceil_div(end, step); ++r) {
    tiles += static_cast<int64_t>(list.row(number, r).size());
  }
  return tiles;
}

}  // namespace tessera::cpu
