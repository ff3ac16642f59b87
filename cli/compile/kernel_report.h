// cli/compile/kernel_report.h: a TPU kernel as JSON and in words.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tessera/mosaic.h"

namespace tessera::cli {

nlohmann::json kernel_json(const MosaicKernel& kernel);
std::string kernel_text(const MosaicKernel& kernel);

}  // namespace tessera::cli
