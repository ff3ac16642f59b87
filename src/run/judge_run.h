// run/judge_run.h: compares a run's outputs with fp64, for its receipt.
#pragma once

#include "lanes/reference/judge.h"
#include "receipt/receipt.h"
#include "tessera/session.h"

namespace tessera::run {

// `given` with the row counts set: all rows if they are few, else a sample.
reference::JudgeOptions judge_options(const Request& request,
                                      const AttentionShape& shape,
                                      reference::JudgeOptions given);
receipt::Receipt::Check check_of(const reference::Verdict& verdict,
                                 const reference::JudgeOptions& options);

// Judges the passes that the call has. The row counts in `given` are not read.
Result<receipt::Receipt::Check> judge_run(const RunCall& call,
                                          reference::JudgeOptions given = {});

}  // namespace tessera::run
