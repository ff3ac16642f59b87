// kernels/blocks/blocks.cc: the table of variants, and the choice of one.
#include "kernels/blocks/blocks.h"

#include <algorithm>

#include "base/integers.h"

namespace tessera::kernels {

#define BLOCKS(name, isa, vbmi2)                                               \
  void pack_blocks_##name(const uint8_t* cells, int64_t rows, int64_t columns, \
                          uint64_t* words);                                    \
  int64_t count_blocks_##name(const uint8_t* bits, int64_t bytes);             \
  void make_block_lists_##name(const BlockTask& task);
#include "kernels/blocks/variants.inc"
#undef BLOCKS

std::span<const BlockVariant> block_variants() {
  static constexpr BlockVariant kVariants[] = {
#define BLOCKS(name, isa, vbmi2) \
  {#name,                        \
   Isa::isa,                     \
   vbmi2,                        \
   &pack_blocks_##name,          \
   &count_blocks_##name,         \
   &make_block_lists_##name},
#include "kernels/blocks/variants.inc"
#undef BLOCKS
  };
  return kVariants;
}

int64_t block_scratch(int64_t rows) { return ceil_div(rows, 64) * 64; }

bool runs_here(const BlockVariant& variant) {
  if (std::ranges::count(machine_isas(), variant.isa) == 0) return false;
#if defined(__x86_64__)
  return !variant.vbmi2 || (__builtin_cpu_supports("avx512vbmi2") &&
                            __builtin_cpu_supports("avx512vbmi") &&
                            __builtin_cpu_supports("gfni") &&
                            __builtin_cpu_supports("avx512vpopcntdq"));
#else
  return true;
#endif
}

const BlockVariant& block_variant(Isa isa) {
  const BlockVariant* best = &block_variants().front();
  for (const BlockVariant& v : block_variants()) {
    if (v.isa <= isa && runs_here(v)) best = &v;
  }
  return *best;
}

}  // namespace tessera::kernels
