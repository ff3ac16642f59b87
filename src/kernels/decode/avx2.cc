// kernels/decode/avx2.cc: the decode kernel for AVX2.
#include "kernels/simd/avx2.h"

#include "kernels/decode/decode_kernel.h"

namespace tessera::kernels {

void decode_avx2_floats(const DecodeTask& task) { decode_floats<Avx2>(task); }

void decode_merge_avx2_floats(const DecodeMerge& task) {
  merge_parts<Avx2>(task);
}

}  // namespace tessera::kernels
