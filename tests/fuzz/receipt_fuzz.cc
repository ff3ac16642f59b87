// tests/fuzz/receipt_fuzz.cc: any text is either a receipt, which can be
// printed and is the same with other white space, or gives an error.
#include "receipt/parts.h"
#include "receipt/read.h"
#include "tests/fuzz/must.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<receipt::ReceiptClaim> receipt = receipt::parse_receipt(text);
  if (!receipt) {
    must(receipt.error().message.starts_with("[receipt] "));
    must(receipt.error().message.find_first_of("\r\n") == std::string::npos);
    must(!check_receipt(text) && !receipt_text(text));
    return 0;
  }
  const Result<std::string> shown = receipt_text(text);
  must(shown.ok() && shown->find('\r') == std::string::npos);
  const auto again =
      receipt::parse_receipt(receipt::fields_json(*receipt).dump(2));
  if (!again) {  // a request with misplaced fields is not read again
    must(!receipt->misplaced.empty());
    return 0;
  }
  must(receipt::differences(*receipt, *again).empty());
  const bool good = receipt::check_digest(*receipt).ok() &&
                    receipt::contradictions(*receipt).empty();
  must(check_receipt(text).ok() == good);
  return 0;
}
