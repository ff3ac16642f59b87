// kernels/simd/sink.h: adds a sink logit to the softmax sums of rows.
#pragma once

#include "kernels/simd/math.h"

namespace tessera::kernels {
namespace {

// `of_keys` is the largest score of each row, in units of log2(e). The logit
// stays in natural units: times log2(e) it could overflow, and where the sink
// takes all the weight, the log-sum-exp is the logit to the bit. A NaN logit
// gives NaN.
template <class V>
struct WithSink {
  using F = typename V::F;
  // The largest score and the sink logit, both minus the larger of the two, in
  // units of log2(e).
  F keys, sink;
  // With l the sum relative to the larger, the log-sum-exp is
  // natural + (most + log2(l)) / log2(e).
  F natural, most;

  WithSink(F of_keys, float logit) {
    const F z = V::set(logit);
    const F largest = V::mul(of_keys, V::set(1 / kLog2e));
    const F top = V::max(largest, z);
    keys = V::mul(V::sub(largest, top), V::set(kLog2e));
    sink = V::mul(V::sub(z, top), V::set(kLog2e));
    const auto is_key = V::equal(top, largest);
    natural = V::select(is_key, V::zero(), z);
    most = V::select(is_key, of_keys, V::zero());
  }
};

}  // namespace
}  // namespace tessera::kernels
