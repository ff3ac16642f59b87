// base/of_layer.h: the element of a list for a layer of a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

// The list repeats if there are more layers; an empty list gives T{}.
template <class T>
T of_layer(const std::vector<T>& list, int64_t layer) {
  return list.empty() ? T{} : list[static_cast<size_t>(layer) % list.size()];
}

}  // namespace tessera
