// receipt/text.h: a receipt for people, a line for each thing.
#pragma once

#include <string>

#include "receipt/read.h"

namespace tessera::receipt {

// `whole`: what was asked, why no other lane, contract and plan too.
std::string text_of(const Receipt& receipt, bool whole = false);
// The whole, and whether its digest is that of its fields.
std::string claim_text(const ReceiptClaim& claim);

// What the reasons of a choice do not say of a row.
std::string gate_words(const GateRow& row);

}  // namespace tessera::receipt
