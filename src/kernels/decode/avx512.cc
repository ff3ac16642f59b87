// kernels/decode/avx512.cc: the decode kernel for AVX-512.
#include "kernels/simd/avx512.h"

#include "kernels/decode/decode_kernel.h"

namespace tessera::kernels {

void decode_avx512_floats(const DecodeTask& task) {
  decode_floats<Avx512>(task);
}

void decode_merge_avx512_floats(const DecodeMerge& task) {
  merge_parts<Avx512>(task);
}

}  // namespace tessera::kernels
