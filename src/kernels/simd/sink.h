// kernels/simd/sink.h: a sink logit joins the sums of rows of scores.
#pragma once

#include "kernels/simd/math.h"

namespace tessera::kernels {
namespace {

// Of rows whose largest score is `of_keys`, in units of log2(e). The logit is
// kept in natural ones: times log2(e) it might be beyond float, and where it
// has everything it is the log-sum-exp to the bit. A NaN logit leaves NaN.
template <class V>
struct WithSink {
  using F = typename V::F;
  // How far below the larger of them, in units of log2(e).
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
