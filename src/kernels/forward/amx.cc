// kernels/forward/amx.cc: the forward kernel for AMX tiles of bf16.
#include "kernels/forward/forward_tiles.h"

namespace tessera::kernels {

void forward_amx_bf16_tiles(const ForwardTask& task) {
  const TileRegisters registers;
  ForwardTiles<Avx512, Bf16Tiles>(task).run();
}

}  // namespace tessera::kernels
