// cli/train/report.h: a training run as text.
#pragma once

#include <cstdint>
#include <string>

#include "data/row_files.h"
#include "receipt/receipt.h"
#include "tessera/train.h"

namespace tessera::cli {

// The model, its spec and its types: the begin of every report.
std::string model_text(const receipt::Receipt& receipt);

// The text before the first step, for one step, and after the last step.
std::string head_text(const receipt::Receipt& receipt,
                      const data::RowFiles& data);
std::string step_text(const StepReport& step, int64_t steps, double seconds);
std::string end_text(const receipt::Receipt& receipt);

}  // namespace tessera::cli
