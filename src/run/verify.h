// run/verify.h: a run that was made again, beside the receipt of the first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json_read.h"
#include "receipt/read.h"
#include "tessera/dispatch.h"

namespace tessera {

struct RunsCompared {
  std::vector<ReceiptDifference> wrong;  // a: claimed, b: what it must be
  int64_t fields = 0;                    // that were compared
  bool here = true;  // on a CPU of the name that the receipt gives
};

// All that a second run can tell, whose lane was named, and the choice, made
// again from the machine that `claimed` tells of. Both are as read_receipt has
// them.
RunsCompared compare_runs(const Json& claimed, const Json& found,
                          const RequestFeatures& features,
                          const PlanFacts& plan);

// The plugin that a receipt's run must load again. What a file says is never
// loaded for that alone: it must be an installed one, or `named` by who asks.
Result<std::string> plugin_to_load(const Json& receipt,
                                   const std::optional<std::string>& named);

int64_t count_leaves(const Json& value);

}  // namespace tessera
