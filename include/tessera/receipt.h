// tessera/receipt.h: what a receipt must look like, and whether one does
// (docs/receipt.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera {

// Of receipts of every kind; any other number is refused.
inline constexpr int kReceiptSchema = 13;

// The JSON schema, draft 2020-12; docs/receipt.schema.json is the same text.
std::string_view receipt_schema();
// What every field means, as Markdown; docs/receipt_fields.md ends in it.
std::string_view receipt_table();

// Its form, its digest, and that its fields do not contradict each other.
// Whether they are true takes running it again: `tessera receipt verify`.
Result<void> check_receipt(std::string_view json);

// For people, a line for each thing, as `tessera receipt show` prints it; the
// last says whether the digest is that of its fields.
Result<std::string> receipt_text(std::string_view json);

struct ReceiptDifference {
  std::string field;  // "tiles.run"
  std::string a, b;   // as JSON; "" where there is none
};
// Of two receipts that check_receipt takes.
Result<std::vector<ReceiptDifference>> diff_receipts(std::string_view a,
                                                     std::string_view b);

}  // namespace tessera
