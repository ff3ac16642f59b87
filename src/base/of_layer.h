// base/of_layer.h: what a model's layer has of a list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

// The list begins again where there are more layers; of an empty one nothing.
template <class T>
T of_layer(const std::vector<T>& list, int64_t layer) {
  return list.empty() ? T{} : list[static_cast<size_t>(layer) % list.size()];
}

}  // namespace tessera
