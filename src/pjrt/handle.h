// pjrt/handle.h: owns an object of a plugin.
#pragma once

#include <memory>

#include "pjrt/plugin.h"

namespace tessera::pjrt {

// The file of each type specializes operator(), which frees the object. An
// error of that call is ignored.
template <class Object>
struct Destroyer {
  const Plugin* plugin;
  void operator()(Object* object) const;
};

template <class Object>
using Handle = std::unique_ptr<Object, Destroyer<Object>>;

}  // namespace tessera::pjrt
