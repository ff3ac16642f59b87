// kernels/decode/decode.cc: the table of decode kernels.
#include "kernels/decode/decode.h"

#include "kernels/simd/panel.h"

namespace tessera::kernels {

#define DECODE(isa, words)                        \
  void decode_##isa##_##words(const DecodeTask&); \
  void decode_merge_##isa##_##words(const DecodeMerge&);
#include "kernels/decode/variants.inc"
#undef DECODE

std::span<const DecodeVariant> decode_variants() {
  static constexpr DecodeVariant kVariants[] = {
#define DECODE(isa, words)                             \
  {Isa::isa, std::string_view(#words) == "bf16_pairs", \
   &decode_##isa##_##words, &decode_merge_##isa##_##words},
#include "kernels/decode/variants.inc"
#undef DECODE
  };
  return kVariants;
}

int64_t decode_pitch(int64_t v_head_dim) {
  return (v_head_dim + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
}

int64_t decode_scratch(int64_t head_dim, int64_t v_head_dim) {
  const int64_t most = head_dim > v_head_dim ? head_dim : v_head_dim;
  return (kDecodeRows + 1) * decode_pitch(most) + 2 * 64 * kDecodeRows;
}

}  // namespace tessera::kernels
