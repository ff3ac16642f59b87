// kernels/forward/forward.cc: the forward kernels there are.
#include "kernels/forward/forward.h"

namespace tessera::kernels {

#define FORWARD(isa, words) void forward_##isa##_##words(const ForwardTask&);
#include "kernels/forward/variants.inc"
#undef FORWARD

std::span<const ForwardVariant> forward_variants() {
  static constexpr ForwardVariant kVariants[] = {
#define FORWARD(isa, words)                            \
  {Isa::isa, std::string_view(#words) == "bf16_pairs", \
   &forward_##isa##_##words},
#include "kernels/forward/variants.inc"
#undef FORWARD
  };
  return kVariants;
}

// Lanes of a panel at most.
static constexpr int64_t kMaxLanes = 32;

int64_t forward_scratch(int64_t head_dim, int64_t v_head_dim) {
  const int64_t floats = kForwardRows * (head_dim + v_head_dim + 3) +
                         kForwardKeys * (head_dim + v_head_dim + 32) +
                         kForwardKeys * kMaxLanes * 2 + 3 * kMaxLanes;
  return floats + 16 * 16;  // each part is rounded up to 16
}

}  // namespace tessera::kernels
