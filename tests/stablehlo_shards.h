// tests/stablehlo_shards.h: the computation of a TPU kernel as StableHLO inside
// a larger program, such as that of shards.
#pragma once

#include <string_view>

#include "lanes/mosaic/shards.h"

namespace tessera::testing {

// Writes a kernel's computation in place of its call. Afterwards the names of
// the program's own arrays are bound as before.
xla::Writer::Values stablehlo_call(xla::Writer& w,
                                   const mosaic::PlannedKernel& kernel,
                                   std::string_view label,
                                   const xla::Writer::Values& inputs);
// The same for floating-point numbers of any type.
xla::Writer::Values stablehlo_call_of_any(xla::Writer& w,
                                          const mosaic::PlannedKernel& kernel,
                                          std::string_view label,
                                          const xla::Writer::Values& inputs);

}  // namespace tessera::testing
