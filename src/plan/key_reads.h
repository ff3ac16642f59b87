// plan/key_reads.h: the keys that tile rows read and those that they need.
#pragma once

#include "mask/sweep.h"
#include "tessera/layouts.h"

namespace tessera::plan {

// Of the plan that the sweep makes.
KeyReads key_reads(const mask::Sweep& sweep, const Plan& plan);

}  // namespace tessera::plan
