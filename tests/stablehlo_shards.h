// tests/stablehlo_shards.h: what the TPU kernel computes in a larger program,
// such as that of shards, as StableHLO.
#pragma once

#include <string_view>

#include "lanes/mosaic/shards.h"

namespace tessera::testing {

// In place of a kernel's call: what it computes of its arrays. The program's
// own arrays have their names again behind it.
xla::Writer::Values stablehlo_call(xla::Writer& w,
                                   const mosaic::PlannedKernel& kernel,
                                   std::string_view label,
                                   const xla::Writer::Values& inputs);
// The same of real numbers of any type.
xla::Writer::Values stablehlo_call_of_any(xla::Writer& w,
                                          const mosaic::PlannedKernel& kernel,
                                          std::string_view label,
                                          const xla::Writer::Values& inputs);

}  // namespace tessera::testing
