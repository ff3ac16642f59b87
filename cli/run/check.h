// cli/run/check.h: `tessera run --check`.
#pragma once

#include "cli/data/attention_data.h"
#include "receipt/receipt.h"
#include "tessera/batch.h"

namespace tessera::cli {

// Everything where it is small, else rows drawn by `seed`. Shows its progress.
Result<receipt::Receipt::Check> check_run(const Batch& batch,
                                          AttentionData& data, uint64_t seed,
                                          bool flushes = false);

}  // namespace tessera::cli
