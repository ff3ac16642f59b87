// pjrt/input_types.h: the inputs of a program, read out of XLA's
// HloModuleProto: the C API tells only what comes out of it.
#pragma once

#include <string_view>
#include <vector>

#include "pjrt/array_type.h"

namespace tessera::pjrt {

// `bytes` is a HloModuleProto, or one with its configuration around it.
Result<std::vector<ArrayType>> input_types(std::string_view bytes,
                                           bool with_config);

}  // namespace tessera::pjrt
