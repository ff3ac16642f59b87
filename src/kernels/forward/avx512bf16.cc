// kernels/forward/avx512bf16.cc: the forward kernel for AVX512-BF16.
#include "kernels/forward/forward_kernel.h"
#include "kernels/simd/bf16_pairs.h"

namespace tessera::kernels {

void forward_avx512bf16_bf16_pairs(const ForwardTask& task) {
  Forward<Avx512, Bf16Pairs>(task).run();
}

}  // namespace tessera::kernels
