// run/verify.h: whether a receipt is true: by itself, and beside a second run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "receipt/read.h"
#include "tessera/dispatch.h"

namespace tessera::run {

struct ReceiptVerdict {
  // What the digest and the fields themselves give away.
  std::vector<std::string> contradictions;
  std::vector<ReceiptDifference> wrong;  // a: claimed, b: what it must be
  std::vector<std::string> notes;  // what could not be compared here, and why
  int64_t compared = 0;            // fields

  bool is_true() const { return contradictions.empty() && wrong.empty(); }
};

struct SecondRun {
  receipt::Receipt receipt;
  // Of a run whose lane was forced, as the first's may not have been: the
  // choice is then made again from these and the machine that was claimed.
  struct Asked {
    RequestFeatures features;
    PlanFacts plan;
  };
  std::optional<Asked> asked;
};

// Runs what a receipt tells of. An error: it cannot be run here.
using RunAgain =
    std::function<Result<SecondRun>(const receipt::Receipt& claimed)>;

// The one way to verify, for receipts of every kind: the digest, what fields
// say of each other, and then every field that a second run tells too. What
// contradicts itself is not run.
Result<ReceiptVerdict> verify_receipt(const receipt::ReceiptClaim& claim,
                                      const RunAgain& run_again);

}  // namespace tessera::run
