// cli/receipt/verify_run.h: runs what a receipt says ran, and tells where the
// two differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json_read.h"
#include "cli/run/options.h"
#include "receipt/read.h"

namespace tessera::cli {

// The flags of the run, with its lane forced; no file is written, and no plugin
// named.
Result<RunFlags> flags_of(const Json& receipt);

struct Verdicts {
  std::vector<ReceiptDifference> wrong;  // a: claimed, b: what it must be
  std::vector<std::string> contradictions;
  std::vector<std::string> notes;  // what could not be compared here, and why
  int64_t compared = 0;            // fields
};
// A note where another version of the library wrote it.
void note_version(const Json& receipt, Verdicts& out);

// `receipt` is of read_receipt, `plugin` one that whoever asks trusts. An
// error: it could not be run again here.
Result<Verdicts> verify_receipt(const Json& receipt,
                                const std::optional<std::string>& plugin);

}  // namespace tessera::cli
