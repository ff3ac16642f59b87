// receipt/read.h: receipts from strangers: their form, their digest, and where
// two of them differ.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json_read.h"
#include "tessera/receipt.h"

namespace tessera {

// Larger files are refused unread.
inline constexpr int64_t kMaxReceiptBytes = int64_t{1} << 24;

// Every field of the schema, none more, every number finite. The digest is not
// looked at.
Result<Json> read_receipt(std::string_view text);

// The same of a run's receipt or one of `tessera bridge`.
Result<Json> read_any_receipt(std::string_view text);
bool is_bridge_receipt(const Json& receipt);

// Of all fields but the digest itself, however they are ordered or spaced.
std::string receipt_digest(const Json& receipt);

Result<void> check_digest(const Json& receipt);

// What must hold among the fields of one receipt: sums, families, who may
// stand in for whom.
std::vector<std::string> contradictions(const Json& receipt);

// Leaves by their path, "tiles.run", where the two differ.
std::vector<ReceiptDifference> differences(const Json& a, const Json& b);

}  // namespace tessera
