// lanes/mosaic/call.h: a kernel as one op of a larger program.
#pragma once

#include <functional>
#include <string_view>

#include "lanes/mosaic/kernel.h"
#include "lanes/xla/writer.h"

namespace tessera::mosaic {

xla::Type type_of(const Argument& array);

// The op that a kernel is in a program, of the arrays of arrays_of. The
// compiler's dumps have it under the label.
xla::Writer::Values call_kernel(xla::Writer& w, const PlannedKernel& kernel,
                                std::string_view label,
                                const xla::Writer::Values& inputs);
// That, or what tests put in its place.
using KernelCall = std::function<xla::Writer::Values(
    xla::Writer&, const PlannedKernel&, std::string_view label,
    const xla::Writer::Values&)>;

}  // namespace tessera::mosaic
