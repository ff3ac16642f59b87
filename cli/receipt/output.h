// cli/receipt/output.h: where the receipt of a run goes.
#pragma once

#include <optional>
#include <string>

#include "receipt/receipt.h"

namespace tessera::cli {

// What the file of a receipt holds.
std::string receipt_file(const receipt::Receipt& receipt);
Result<void> write_receipt(const std::string& path,
                           const receipt::Receipt& receipt);

// As typed: files that were asked for.
struct ReceiptFlags {
  std::optional<std::string> outputs;  // which is written already
  std::optional<std::string> receipt;
  bool json = false;  // it alone, on stdout
};
// Writes the receipt and prints it: the exit code of the run, which a check
// that did not pass has failed.
Result<int> give_receipt(const receipt::Receipt& receipt,
                         const ReceiptFlags& flags);

}  // namespace tessera::cli
