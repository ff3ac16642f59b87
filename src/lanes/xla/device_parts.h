// lanes/xla/device_parts.h: a program's arrays as devices hold them.
#pragma once

#include <vector>

#include "lanes/resident.h"
#include "lanes/xla/planned.h"
#include "pjrt/buffer.h"

namespace tessera::xla {

inline pjrt::ArrayType array_type(const Type& type) {
  return {dtype_of(type.element), type.dims};
}

// An array that stays on the devices between layers.
struct DeviceParts : lanes::Resident {
  std::vector<pjrt::Buffer> parts;  // one for each device
};

}  // namespace tessera::xla
