// cli/run_report.h: a run's receipt, and the same in words.
#pragma once

#include <string>

#include "cli/flags.h"
#include "cli/run_options.h"
#include "receipt/receipt.h"

namespace tessera::cli {

// What was asked, given and planned; what ran is added by whoever ran it.
Result<Receipt> start_receipt(const RunFlags& flags, const RunOptions& options,
                              const Planned& planned);

std::string run_text(const Receipt& receipt);

}  // namespace tessera::cli
