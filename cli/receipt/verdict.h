// cli/receipt/verdict.h: prints the result of verifying a receipt, and the
// differences of two receipts, as text or JSON.
#pragma once

#include <vector>

#include "run/verify.h"

namespace tessera::cli {

void print_verdict(const run::ReceiptVerdict& verdict, bool as_json);
void print_differences(const std::vector<ReceiptDifference>& all, bool as_json);

}  // namespace tessera::cli
