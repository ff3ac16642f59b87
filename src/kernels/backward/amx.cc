// kernels/backward/amx.cc: the backward kernel for AMX tiles of bf16.
#include "kernels/backward/backward_tiles.h"

namespace tessera::kernels {
namespace {

constexpr BackwardKernel kernel_of_tiles() {
  BackwardKernel kernel = backward_kernel<Avx512, Bf16Tiles>();
  kernel.add = [](const BackwardBlock& block, const BackwardChunk& chunk) {
    const TileRegisters registers;
    BackwardTiles<Avx512, Bf16Tiles>(block).add(chunk);
  };
  return kernel;
}

}  // namespace

const BackwardKernel& backward_amx_bf16_tiles() {
  static constexpr BackwardKernel kKernel = kernel_of_tiles();
  return kKernel;
}

}  // namespace tessera::kernels
