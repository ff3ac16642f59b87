// tests/layers.h: runs one prepared call layer after layer, as a model does.
#pragma once

#include "tessera/session.h"

namespace tessera::testing {

// Returns the error of the first layer that fails.
inline Result<void> forward_layers(Prepared& ready, const ForwardTensors& layer,
                                   int count) {
  for (int i = 0; i < count; ++i) {
    if (auto ran = ready.forward(layer); !ran) return ran.error();
  }
  return {};
}

}  // namespace tessera::testing
