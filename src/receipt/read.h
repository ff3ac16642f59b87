// receipt/read.h: receipts from strangers: their form, their digest, and where
// two of them differ.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json_read.h"
#include "receipt/receipt.h"
#include "tessera/receipt.h"

namespace tessera::receipt {

// Larger files are refused unread.
inline constexpr int64_t kMaxReceiptBytes = int64_t{1} << 24;

// What a receipt says that somebody wrote.
struct ReceiptClaim : Receipt {
  std::string digest_due;  // of the text's fields, as they stand there
  // Fields that are there, or are not, against what others say.
  std::vector<std::string> misplaced;
};

// Exactly the fields of the table, each of its type, every number finite;
// errors name the field. The digest is not looked at.
Result<ReceiptClaim> parse_receipt(std::string_view text);

// Of all fields but the digest itself, however they are ordered or spaced.
std::string receipt_digest(const Json& receipt);
Result<void> check_digest(const ReceiptClaim& claim);

// What must hold among the fields of one receipt: sums, families, who may
// stand in for whom.
std::vector<std::string> contradictions(const ReceiptClaim& claim);

// Leaves by their path, "tiles.run", where the two differ.
std::vector<ReceiptDifference> differences(const Json& a, const Json& b);
std::vector<ReceiptDifference> differences(const Receipt& a, const Receipt& b);

}  // namespace tessera::receipt
