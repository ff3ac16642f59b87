// cli/receipt/output.cc: writes a receipt to a file and prints it.
#include "cli/receipt/output.h"

#include <fmt/format.h>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/command.h"
#include "receipt/text.h"

namespace tessera::cli {

std::string receipt_file(const receipt::Receipt& receipt) {
  return receipt::receipt_json(receipt, 2) + "\n";
}

Result<void> write_receipt(const std::string& path,
                           const receipt::Receipt& receipt) {
  return write_file(path, receipt_file(receipt));
}

Result<int> give_receipt(const receipt::Receipt& receipt,
                         const ReceiptFlags& f) {
  if (f.receipt) {
    if (auto e = write_receipt(*f.receipt, receipt); !e) return e.error();
  }
  if (f.json) {
    fmt::print("{}\n", receipt::receipt_json(receipt));
  } else {
    fmt::print("{}", receipt::text_of(receipt));
    if (f.outputs) fmt::print("{:<11} {}\n", "outputs", on_a_line(*f.outputs));
    if (f.receipt) fmt::print("{:<11} {}\n", "receipt", on_a_line(*f.receipt));
  }
  const bool checked = receipt.check.kind != "none";
  return checked && !receipt.check.passed ? kFailed : kOk;
}

}  // namespace tessera::cli
