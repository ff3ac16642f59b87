// tests/judged_passes.cc: runs both passes of a prepared call, checked by fp64.
#include "tests/judged_passes.h"

#include <gtest/gtest.h>

#include "tessera/receipt.h"

namespace tessera::testing {

Result<JudgedPasses> judge_passes(Prepared& ready, AttentionArrays& arrays) {
  const Wanted want = wanted(arrays, true);
  arrays.clear_outputs();
  auto saved = ready.forward(arrays.forward(true));
  if (!saved) return saved.error();
  EXPECT_EQ(forward_fault(want, arrays.forward(true)), std::nullopt);
  const Gradients gradients = arrays.gradients();
  const auto done = ready.backward(*saved, gradients);
  if (!done) return done.error();
  EXPECT_EQ(backward_fault(arrays.c, want, gradients), std::nullopt);
  EXPECT_EQ(arrays.spilled(), std::nullopt);
  return JudgedPasses{*saved, gradients};
}

Result<std::string> judged_receipt(Prepared& ready, AttentionArrays& arrays) {
  const auto passes = judge_passes(ready, arrays);
  if (!passes) return passes.error();
  auto receipt = ready.receipt(passes->saved, &passes->gradients);
  if (!receipt) return receipt.error();
  if (auto form = check_receipt(*receipt); !form) return form.error();
  return receipt;
}

}  // namespace tessera::testing
