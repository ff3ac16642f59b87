// pjrt/element_type.h: converts between the vendor's element types and Dtype.
// Private to src/pjrt: this file includes the vendor's header.
#pragma once

#include <pjrt_c_api.h>

#include <optional>

#include "tessera/attention.h"

namespace tessera::pjrt {

PJRT_Buffer_Type element_type(Dtype dtype);
// Nothing for an unknown type: `type` may be from a newer plugin.
std::optional<Dtype> dtype_of(int type);

}  // namespace tessera::pjrt
