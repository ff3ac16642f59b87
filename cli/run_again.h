// cli/run_again.h: runs what a receipt says ran, and tells where the two
// differ.
#pragma once

#include <string>
#include <vector>

#include "base/json_read.h"
#include "cli/run_options.h"
#include "receipt/read.h"

namespace tessera::cli {

// The flags of the run, with its lane forced; no file is written.
Result<RunFlags> flags_of(const Json& receipt);

struct Verdicts {
  std::vector<ReceiptDifference> wrong;  // a: claimed, b: what it must be
  std::vector<std::string> contradictions;
  std::vector<std::string> notes;  // what could not be compared here, and why
  int64_t compared = 0;            // fields
};
// A note where another version of the library wrote it.
void note_version(const Json& receipt, Verdicts& out);

int64_t count_leaves(const Json& value);

// `receipt` is of read_receipt. An error: it could not be run again here.
Result<Verdicts> verify_receipt(const Json& receipt);

}  // namespace tessera::cli
