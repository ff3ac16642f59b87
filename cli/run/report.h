// cli/run/report.h: a run's receipt, and the same in words.
#pragma once

#include <string>

#include "cli/request/flags.h"
#include "cli/run/options.h"
#include "receipt/receipt.h"

namespace tessera::cli {

// To a session's receipt: who asked, the words of the request, and where the
// arrays are from.
void add_given(const RunFlags& flags, const RunOptions& options,
               const Planned& planned, Receipt& receipt);

std::string run_text(const Receipt& receipt);

}  // namespace tessera::cli
