// kernels/blocks/avx512.cc: the block mask kernels for AVX-512.
#include "kernels/blocks/avx512_blocks.h"

namespace tessera::kernels {

BLOCK_LISTS(avx512, Avx512Blocks)

}  // namespace tessera::kernels
