// cli/run/receipt.h: the fields of a run's receipt that come from its flags.
#pragma once

#include "cli/run/options.h"
#include "receipt/receipt.h"
#include "request/load.h"

namespace tessera::cli {

// Adds to a session's receipt the command, the request as text, and the source
// of the arrays.
void add_given(const RunFlags& flags, const RunOptions& options,
               const request::Planned& planned, receipt::Receipt& receipt);

}  // namespace tessera::cli
