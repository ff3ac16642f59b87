// run/judge_run.h: what a run wrote, held against fp64, as its receipt has it.
#pragma once

#include "lanes/reference/judge.h"
#include "receipt/receipt.h"
#include "tessera/session.h"

namespace tessera::run {

// Those that were given, for all rows where these are few, else for a sample.
reference::JudgeOptions judge_options(const Request& request,
                                      const AttentionShape& shape,
                                      reference::JudgeOptions given);
receipt::Receipt::Check check_of(const reference::Verdict& verdict,
                                 const reference::JudgeOptions& options);

// The passes that the call has; how many rows is not the caller's to say.
Result<receipt::Receipt::Check> judge_run(const RunCall& call,
                                          reference::JudgeOptions given = {});

}  // namespace tessera::run
