// pjrt/input_types.h: reads the types of a program's inputs from XLA's
// HloModuleProto, since the C API tells only those of its outputs.
#pragma once

#include <string_view>
#include <vector>

#include "pjrt/array_type.h"

namespace tessera::pjrt {

// `bytes` is a HloModuleProto, or a HloModuleProtoWithConfig.
Result<std::vector<ArrayType>> input_types(std::string_view bytes,
                                           bool with_config);

}  // namespace tessera::pjrt
