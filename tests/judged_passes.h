// tests/judged_passes.h: both passes of what a session prepared, each held to
// fp64.
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
// Their receipt, whose form holds.
Result<std::string> judged_receipt(Prepared& ready, AttentionArrays& arrays);

}  // namespace tessera::testing
