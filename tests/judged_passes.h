// tests/judged_passes.h: runs both passes of a prepared call, checked by fp64.
#pragma once

#include <string>

#include "tessera/session.h"
#include "tests/attention_case.h"

namespace tessera::testing {

struct JudgedPasses {
  Saved saved;
  Gradients gradients;
};
Result<JudgedPasses> judge_passes(Prepared& ready, AttentionArrays& arrays);
// The receipt of both passes, after a check of its form.
Result<std::string> judged_receipt(Prepared& ready, AttentionArrays& arrays);

}  // namespace tessera::testing
