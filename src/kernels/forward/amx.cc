// kernels/forward/amx.cc
#include "kernels/forward/forward_tiles.h"

namespace tessera::kernels {

void forward_amx_bf16_tiles(const ForwardTask& task) {
  const TileRegisters registers;
  ForwardTiles<Avx512, Bf16Tiles>(task).run();
}

}  // namespace tessera::kernels
