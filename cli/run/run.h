// cli/run/run.h: runs a request as flags say.
#pragma once

#include "cli/run/options.h"
#include "receipt/receipt.h"
#include "tessera/dispatch.h"

namespace tessera::cli {

// The call, known from the options before any array is made.
AttentionCall call_of(const RunOptions& options);

struct RunOutcome {
  receipt::Receipt receipt;
  RequestFeatures features;  // the inputs of the choice
  PlanFacts plan;
  request::AttentionData data;
};
// Plans, chooses a lane, runs it and, with --check, checks the result. Writes
// no file.
Result<RunOutcome> run_request(const RunFlags& flags);
// The same with options that were read from the flags before; the caller may
// have changed `options.lanes`.
Result<RunOutcome> run_request(const RunFlags& flags, RunOptions options);

}  // namespace tessera::cli
