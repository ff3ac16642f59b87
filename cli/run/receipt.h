// cli/run/receipt.h: what a run's receipt holds of its flags.
#pragma once

#include "cli/run/options.h"
#include "receipt/receipt.h"
#include "request/load.h"

namespace tessera::cli {

// To a session's receipt: who asked, the words of the request, and where the
// arrays are from.
void add_given(const RunFlags& flags, const RunOptions& options,
               const request::Planned& planned, receipt::Receipt& receipt);

}  // namespace tessera::cli
