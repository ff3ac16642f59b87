// lanes/mosaic/call.h: a kernel as one op of a larger program.
#pragma once

#include <functional>
#include <string_view>

#include "lanes/mosaic/kernel.h"
#include "lanes/xla/writer.h"

namespace tessera::mosaic {

xla::Type type_of(const Argument& array);

// Writes the kernel's custom call with the inputs of arrays_of() and returns
// its results. The compiler's dumps show the op under `label`.
xla::Writer::Values call_kernel(xla::Writer& w, const PlannedKernel& kernel,
                                std::string_view label,
                                const xla::Writer::Values& inputs);
// call_kernel, or a replacement in tests.
using KernelCall = std::function<xla::Writer::Values(
    xla::Writer&, const PlannedKernel&, std::string_view label,
    const xla::Writer::Values&)>;

}  // namespace tessera::mosaic
