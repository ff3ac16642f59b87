// kernels/forward/forward.cc: the table of forward kernels.
#include "kernels/forward/forward.h"

#include "kernels/simd/panel.h"

namespace tessera::kernels {

#define FORWARD(isa, words) void forward_##isa##_##words(const ForwardTask&);
#include "kernels/forward/variants.inc"
#undef FORWARD

std::span<const ForwardVariant> forward_variants() {
  static constexpr ForwardVariant kVariants[] = {
#define FORWARD(isa, words) \
  {Isa::isa, std::string_view(#words) != "floats", &forward_##isa##_##words},
#include "kernels/forward/variants.inc"
#undef FORWARD
  };
  return kVariants;
}

int64_t forward_scratch(int64_t head_dim, int64_t v_head_dim) {
  // Tiles take 32 numbers at a time and keep a second, transposed copy of V.
  head_dim = (head_dim + 31) / 32 * 32;
  v_head_dim = (v_head_dim + 31) / 32 * 32;
  const int64_t floats = kForwardRows * (head_dim + v_head_dim + 3) +
                         kForwardKeys * (head_dim + v_head_dim + 32) +
                         (kForwardKeys / 2 + 16) * v_head_dim +
                         kForwardKeys * kMaxLanes * 2 + 3 * kMaxLanes;
  return floats + 16 * 16;  // each part is rounded up to 16
}

}  // namespace tessera::kernels
