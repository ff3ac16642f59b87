// cli/train/report.h: a training run in words.
#pragma once

#include <cstdint>
#include <string>

#include "data/row_files.h"
#include "receipt/receipt.h"
#include "tessera/train.h"

namespace tessera::cli {

// The model, by whom and in which types; the start of every report.
std::string model_text(const receipt::Receipt& receipt);

// What is trained and on what, before the first step; one step of it; the end.
std::string head_text(const receipt::Receipt& receipt,
                      const data::RowFiles& data);
std::string step_text(const StepReport& step, int64_t steps, double seconds);
std::string end_text(const receipt::Receipt& receipt);

}  // namespace tessera::cli
