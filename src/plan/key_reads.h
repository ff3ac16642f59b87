// plan/key_reads.h: counts the keys that tile rows read and those they need.
#pragma once

#include "mask/sweep.h"
#include "tessera/layouts.h"

namespace tessera::plan {

// `plan` must be the plan made from `sweep`.
KeyReads key_reads(const mask::Sweep& sweep, const Plan& plan);

}  // namespace tessera::plan
