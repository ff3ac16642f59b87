// tessera/receipt.h: what a receipt must look like, and whether one does
// (docs/receipt.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera {

inline constexpr int kReceiptSchema = 3;
inline constexpr int kBridgeReceiptSchema = 2;

// The JSON schema, draft 2020-12; docs/receipt.schema.json is the same text.
std::string_view receipt_schema();
// Of `tessera bridge`, of any operation; docs/bridge_receipt.schema.json.
std::string_view bridge_receipt_schema();

// Its form, its digest, and that its fields do not contradict each other.
// Whether they are true takes running it again: `tessera receipt verify`.
Result<void> check_receipt(std::string_view json);

struct ReceiptDifference {
  std::string field;  // "tiles.run"
  std::string a, b;   // as JSON; "" where there is none
};
// Of two receipts that check_receipt takes.
Result<std::vector<ReceiptDifference>> diff_receipts(std::string_view a,
                                                     std::string_view b);

}  // namespace tessera
