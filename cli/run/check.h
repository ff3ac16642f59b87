// cli/run/check.h: `tessera run --check`.
#pragma once

#include "lanes/reference/judge.h"
#include "receipt/receipt.h"
#include "request/attention_data.h"
#include "tessera/batch.h"

namespace tessera::cli {

// Judges everything where it is small, else rows drawn by `seed`.
reference::JudgeOptions judge_options(const Request& request,
                                      const AttentionShape& shape,
                                      uint64_t seed, bool flushes);
receipt::Receipt::Check check_of(const reference::Verdict& verdict,
                                 const reference::JudgeOptions& options);

// Shows its progress.
Result<receipt::Receipt::Check> check_run(const Batch& batch,
                                          request::AttentionData& data,
                                          uint64_t seed, bool flushes = false,
                                          bool rounded_sum = false);

}  // namespace tessera::cli
