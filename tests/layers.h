// tests/layers.h: one prepared call run as a model runs it, layer after layer.
#pragma once

#include "tessera/session.h"

namespace tessera::testing {

// The error of the first layer that fails.
inline Result<void> forward_layers(Prepared& ready, const ForwardTensors& layer,
                                   int count) {
  for (int i = 0; i < count; ++i) {
    if (auto ran = ready.forward(layer); !ran) return ran.error();
  }
  return {};
}

}  // namespace tessera::testing
