// cli/receipt/output.h: writes and prints the receipt of a run.
#pragma once

#include <optional>
#include <string>

#include "receipt/receipt.h"

namespace tessera::cli {

// The content of a receipt's file.
std::string receipt_file(const receipt::Receipt& receipt);
Result<void> write_receipt(const std::string& path,
                           const receipt::Receipt& receipt);

// The flags of a run that name its output files.
struct ReceiptFlags {
  std::optional<std::string> outputs;  // already written
  std::optional<std::string> receipt;
  bool json = false;  // print only the receipt, as JSON
};
// Writes and prints the receipt. Returns the run's exit code: kFailed if a
// check did not pass.
Result<int> give_receipt(const receipt::Receipt& receipt,
                         const ReceiptFlags& flags);

}  // namespace tessera::cli
