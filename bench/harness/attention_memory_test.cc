// bench/harness/attention_memory_test.cc: allocations of attention on the cpu
// lane grow with tokens x head dim, not with queries x keys. The test is here
// because it uses the memory meter.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "bench/harness/memory_meter.h"
#include "lanes/cpu/cpu.h"
#include "plan/make_plan.h"

namespace tessera::bench {
namespace {

constexpr int64_t kHeads = 2, kDim = 64;

// Peak bytes beyond the arrays of the call, in a thread without kept scratch.
struct Extra {
  int64_t prepare = 0, forward = 0, backward = 0;
};

Extra measure(int64_t tokens) {
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = request.kv_len = tokens;
  request.tile = {128, 128};
  auto plan = plan::make_plan(request, {});
  EXPECT_TRUE(plan);
  const auto n = static_cast<size_t>(kHeads * tokens * kDim);
  std::vector<float> q(n, 0.1F), out(n), dq(n), dk(n), dv(n);
  std::vector<float> lse(static_cast<size_t>(kHeads * tokens));
  const auto view = [&](const std::vector<float>& x) {
    return TensorView::bhsd(x.data(), Dtype::f32, 1, kHeads, tokens, kDim);
  };
  const auto write = [&](std::vector<float>& x) {
    return MutableTensorView::bhsd(x.data(), Dtype::f32, 1, kHeads, tokens,
                                   kDim);
  };
  AttentionShape shape;
  shape.heads = shape.kv_heads = kHeads;
  shape.head_dim = shape.v_head_dim = kDim;
  CpuOptions options;
  options.threads = 1;

  Extra extra;
  std::thread([&] {
    const auto peak_of = [](auto work) {
      reset_heap_peak();
      const int64_t before = heap_bytes().now;
      work();
      return heap_bytes().peak - before;
    };
    std::optional<Result<cpu::CpuWork>> work;
    extra.prepare = peak_of([&] {
      work.emplace(
          cpu::cpu_prepare(*BorrowedBatch::make(request, {}), options));
    });
    ASSERT_TRUE(*work);
    ForwardTensors f{view(q), view(q), view(q), std::nullopt, write(out), lse};
    extra.forward = peak_of(
        [&] { EXPECT_TRUE(cpu::cpu_forward(**work, shape, f, options)); });
    const Gradients g{view(out), {}, write(dq), write(dk), write(dv), {}};
    extra.backward = peak_of(
        [&] { EXPECT_TRUE(cpu::cpu_backward(**work, shape, f, g, options)); });
  }).join();
  return extra;
}

TEST(AttentionMemory, GrowsWithTokensTimesHeadDim) {
  constexpr int64_t kFixed = int64_t{2} << 20;  // blocks of one thread
  for (const int64_t tokens : {2048, 4096, 8192}) {
    const Extra extra = measure(tokens);
    // The lists, and about 50 bytes for each query.
    EXPECT_LE(extra.prepare, kFixed + 64 * tokens) << tokens;
    EXPECT_LE(extra.forward, kFixed) << tokens;
    // dq in fp32, and lse, delta and a flag for each query; 8 bytes for each
    // block of pairs, in a vector that doubles its size.
    const int64_t blocks = tokens / 128;
    EXPECT_LE(extra.backward,
              kFixed + kHeads * tokens * (4 * kDim + 16) + 32 * blocks * blocks)
        << tokens;
#ifndef TESSERA_SANITIZED
    EXPECT_GE(extra.backward, kHeads * tokens * 4 * kDim);  // the meter works
#endif
  }
}

}  // namespace
}  // namespace tessera::bench
