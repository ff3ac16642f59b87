// cli/receipt/text.h: a receipt for people, a line for each thing.
#pragma once

#include <string>

#include "receipt/receipt.h"

namespace tessera::cli {

// `whole`: what was asked, why no other lane, contract and plan too.
std::string receipt_text(const receipt::Receipt& receipt, bool whole = false);

}  // namespace tessera::cli
