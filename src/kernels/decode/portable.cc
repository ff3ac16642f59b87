// kernels/decode/portable.cc: the decode kernel for any machine.
#include "kernels/simd/portable.h"

#include "kernels/decode/decode_kernel.h"

namespace tessera::kernels {

void decode_portable_floats(const DecodeTask& task) {
  decode_floats<Portable>(task);
}

void decode_merge_portable_floats(const DecodeMerge& task) {
  merge_parts<Portable>(task);
}

}  // namespace tessera::kernels
