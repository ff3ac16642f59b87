// cli/run/check.h: the judge, as commands call it.
#pragma once

#include "run/judge_run.h"

namespace tessera::cli {

using run::check_of;

inline reference::JudgeOptions judge_options(const Request& request,
                                             const AttentionShape& shape,
                                             uint64_t seed, bool flushes) {
  return run::judge_options(request, shape, {.seed = seed, .flushes = flushes});
}

}  // namespace tessera::cli
