// lanes/mosaic/telemetry.h: the TPU kernel of sink telemetry, as text.
#pragma once

#include <string>
#include <vector>

#include "lanes/mosaic/shape.h"
#include "lanes/mosaic/writer.h"

namespace tessera::mosaic {

inline constexpr int kTelemetryOutputs = 2;  // the last of the arrays

std::vector<Argument> telemetry_arguments(const KernelShape& shape);
std::string telemetry_kernel(const KernelShape& shape);

}  // namespace tessera::mosaic
