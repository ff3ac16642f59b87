// tessera/receipt.h: the schema of receipts, and functions that check, print
// and compare them (docs/receipt.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera {

// The schema version of receipts of every kind; any other version is refused.
inline constexpr int kReceiptSchema = 13;

// The JSON schema, draft 2020-12; docs/receipt.schema.json is the same text.
std::string_view receipt_schema();
// The meaning of every field, as Markdown; docs/receipt_fields.md ends with it.
std::string_view receipt_table();

// Checks a receipt's form and digest, and that its fields do not contradict
// each other. It cannot tell whether they are true: `tessera receipt verify`
// runs the call again.
Result<void> check_receipt(std::string_view json);

// The receipt as text for people, as `tessera receipt show` prints it. The last
// line says whether the digest is that of the fields.
Result<std::string> receipt_text(std::string_view json);

struct ReceiptDifference {
  std::string field;  // "tiles.run"
  std::string a, b;   // values as JSON; "" if the receipt lacks the field
};
// The fields that differ between two receipts; check_receipt must accept both.
Result<std::vector<ReceiptDifference>> diff_receipts(std::string_view a,
                                                     std::string_view b);

}  // namespace tessera
