// receipt/text.h: a receipt as text for people, one line per item.
#pragma once

#include <string>

#include "receipt/read.h"

namespace tessera::receipt {

// `whole` adds what was asked, the rejected lanes, contract and plan.
std::string text_of(const Receipt& receipt, bool whole = false);
// The whole text, and whether the digest is that of the fields.
std::string claim_text(const ReceiptClaim& claim);

// A gate row in words, with what the reason of a choice leaves out.
std::string gate_words(const GateRow& row);

}  // namespace tessera::receipt
