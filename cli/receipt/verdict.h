// cli/receipt/verdict.h: what running a receipt again found, and how two
// receipts differ, as text or JSON on stdout.
#pragma once

#include <vector>

#include "run/verify.h"

namespace tessera::cli {

void print_verdict(const run::ReceiptVerdict& verdict, bool as_json);
void print_differences(const std::vector<ReceiptDifference>& all, bool as_json);

}  // namespace tessera::cli
