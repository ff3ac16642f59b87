// receipt/read.h: reads receipts, which are untrusted: their form, their digest
// and the differences of two.
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

// A receipt as it was read; none of its claims is verified.
struct ReceiptClaim : Receipt {
  std::string digest_due;  // computed from the fields in the text
  // Fields that are present or missing in contradiction to other fields.
  std::vector<std::string> misplaced;
};

// The text must have exactly the fields of the table, each of its type, and
// finite numbers; errors name the field. The digest is not checked.
Result<ReceiptClaim> parse_receipt(std::string_view text);

// The digest of all other fields, independent of their order and spacing.
std::string receipt_digest(const Json& receipt);
Result<void> check_digest(const ReceiptClaim& claim);

// The broken rules between the fields of one receipt: sums, families, allowed
// fallbacks and so on.
std::vector<std::string> contradictions(const ReceiptClaim& claim);

// The leaves, by path such as "tiles.run", in which the two differ.
std::vector<ReceiptDifference> differences(const Json& a, const Json& b);
std::vector<ReceiptDifference> differences(const Receipt& a, const Receipt& b);

}  // namespace tessera::receipt
