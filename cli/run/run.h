// cli/run/run.h: from flags to outputs and a receipt.
#pragma once

#include "cli/run/options.h"
#include "receipt/receipt.h"
#include "tessera/dispatch.h"

namespace tessera::cli {

// As the arrays and flags will make it, before there is an array.
AttentionCall call_of(const RunOptions& options);

struct RunOutcome {
  receipt::Receipt receipt;
  RequestFeatures features;  // what the choice was made from
  PlanFacts plan;
  request::AttentionData data;
};
// Plans, chooses a lane, runs it and checks it where that was asked for. Writes
// nothing.
Result<RunOutcome> run_request(const RunFlags& flags);
// With options that were read from the flags before; their lanes may be others.
Result<RunOutcome> run_request(const RunFlags& flags, RunOptions options);

}  // namespace tessera::cli
