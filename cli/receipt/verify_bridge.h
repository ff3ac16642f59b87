// cli/receipt/verify_bridge.h: runs the operation again that a bridge receipt
// tells of.
#pragma once

#include "cli/receipt/verify_run.h"

namespace tessera::cli {

// `receipt` is of read_any_receipt, and is_bridge_receipt() of it; `plugin` is
// one that whoever asks trusts. An error: it could not be run again here.
Result<Verdicts> verify_bridge_receipt(
    const Json& receipt, const std::optional<std::string>& plugin);

}  // namespace tessera::cli
