// request/random_inputs_test.cc: random inputs are the same everywhere, in
// every layout, and near to normal.
#include "request/random_inputs.h"

#include <gtest/gtest.h>

#include "base/float16.h"
#include "receipt/digests.h"
#include "request/attention_data.h"

namespace tessera::request {
namespace {

TEST(RandomInputs, AreNearToNormal) {
  constexpr uint64_t kCount = 1 << 20;
  double sums[4] = {};
  double neighbours = 0;
  float last = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const float x = random_normal(0, Stream::q, i);
    double power = 1;
    for (double& sum : sums) sum += power *= x;
    neighbours += x * last;
    last = x;
  }
  const double n = kCount;
  EXPECT_NEAR(sums[0] / n, 0, 0.005);
  EXPECT_NEAR(sums[1] / n, 1, 0.005);
  EXPECT_NEAR(sums[2] / n, 0, 0.02);
  EXPECT_NEAR(sums[3] / n, 3 - 0.15, 0.03);  // of a sum of eight uniforms
  EXPECT_NEAR(neighbours / n, 0, 0.005);
}

TEST(RandomInputs, SeedsAndStreamsDiffer) {
  double same = 0;
  for (uint64_t i = 0; i < 4096; ++i) {
    const float x = random_normal(1, Stream::q, i);
    same += x == random_normal(2, Stream::q, i);
    same += x == random_normal(1, Stream::k, i);
    EXPECT_EQ(x, random_normal(1, Stream::q, i));
  }
  EXPECT_LT(same, 16);
}

TEST(RandomInputs, LayoutAndDtypeChangeNoValue) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    Array a(dtype, Layout::bhsd, 2, 3, 5, 4);
    Array b(dtype, Layout::bshd, 2, 3, 5, 4);
    fill_random(a.view(), 9, Stream::v);
    fill_random(b.view(), 9, Stream::v);
    const Array &ca = a, &cb = b;
    EXPECT_EQ(receipt::array_digest(ca.view()),
              receipt::array_digest(cb.view()));
    EXPECT_NE(a.bytes(), b.bytes());
    // Element (1, 2, 3, 1) in both layouts.
    const float x = random_normal(9, Stream::v, ((1 * 3 + 2) * 5 + 3) * 4 + 1);
    const size_t at = ((1 * 5 + 3) * 3 + 2) * 4 + 1;
    if (dtype == Dtype::f32) {
      EXPECT_EQ(static_cast<const float*>(b.view().data)[at], x);
    } else {
      EXPECT_EQ(static_cast<const uint16_t*>(b.view().data)[at],
                dtype == Dtype::bf16 ? to_bf16(x) : to_f16(x));
    }
  }
}

}  // namespace
}  // namespace tessera::request
