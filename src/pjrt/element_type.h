// pjrt/element_type.h: the vendor's types of elements, and ours. Private to
// src/pjrt: it brings the vendor's header.
#pragma once

#include <pjrt_c_api.h>

#include <optional>

#include "tessera/attention.h"

namespace tessera::pjrt {

PJRT_Buffer_Type element_type(Dtype dtype);
// Nothing for one that is not known here: `type` may be a newer plugin's.
std::optional<Dtype> dtype_of(int type);

}  // namespace tessera::pjrt
