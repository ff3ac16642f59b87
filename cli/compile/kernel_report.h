// cli/compile/kernel_report.h: a TPU kernel as JSON and text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/compile/asked_kernel.h"

namespace tessera::cli {

nlohmann::json kernel_json(const AskedKernel& asked);
std::string kernel_text(const AskedKernel& asked);

}  // namespace tessera::cli
