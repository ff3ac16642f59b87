// run/verify.h: checks a receipt alone, then against a second run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "receipt/read.h"
#include "tessera/dispatch.h"

namespace tessera::run {

struct ReceiptVerdict {
  // From the digest and from fields that contradict each other.
  std::vector<std::string> contradictions;
  std::vector<ReceiptDifference> wrong;  // a: claimed, b: what it must be
  std::vector<std::string> notes;  // what could not be compared here, and why
  int64_t compared = 0;            // count of fields

  bool is_true() const { return contradictions.empty() && wrong.empty(); }
};

struct SecondRun {
  receipt::Receipt receipt;
  // Set if the second run forced the lane. The choice of the first run is then
  // made again from these and the claimed machine.
  struct Asked {
    RequestFeatures features;
    PlanFacts plan;
  };
  std::optional<Asked> asked;
};

// Runs again what a receipt describes. An error: it cannot run here.
using RunAgain =
    std::function<Result<SecondRun>(const receipt::Receipt& claimed)>;

// Verifies receipts of every kind: the digest, the fields against each other,
// then every field that a second run repeats. A receipt that contradicts itself
// is not run again.
Result<ReceiptVerdict> verify_receipt(const receipt::ReceiptClaim& claim,
                                      const RunAgain& run_again);

}  // namespace tessera::run
