// kernels/backward/backward.cc: the table of backward kernels.
#include "kernels/backward/backward.h"

#include "kernels/simd/panel.h"

namespace tessera::kernels {

#define BACKWARD(isa, words) const BackwardKernel& backward_##isa##_##words();
#include "kernels/backward/variants.inc"
#undef BACKWARD

std::span<const BackwardVariant> backward_variants() {
  static constexpr BackwardVariant kVariants[] = {
#define BACKWARD(isa, words) \
  {Isa::isa, std::string_view(#words) != "floats", backward_##isa##_##words},
#include "kernels/backward/variants.inc"
#undef BACKWARD
  };
  return kVariants;
}

int64_t dq_row_floats(int64_t head_dim) { return (head_dim + 31) / 32 * 32; }

int64_t backward_scratch(int64_t head_dim, int64_t v_head_dim) {
  // Tiles take 32 bf16 of a row at a time and keep a second, transposed copy of
  // the pairs of Q and dout.
  const int64_t dims = dq_row_floats(head_dim) + dq_row_floats(v_head_dim);
  const int64_t floats = kBackwardKeys * (2 * dims + dq_row_floats(head_dim)) +
                         2 * kBackwardRows * (dims + 32) +
                         (kBackwardRows / 2 + 16) * dims +
                         kBackwardRows * (kBackwardKeys + 4 * kMaxLanes);
  return floats + 19 * 16;  // each part is rounded up to 16
}

}  // namespace tessera::kernels
