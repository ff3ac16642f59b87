// lanes/cpu/cpu_threads_test.cc: results are the same bits for any number of
// threads, in every run and from any caller. The thread sanitizer runs it too.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/threads.h"
#include "lanes/cpu/cpu.h"
#include "plan/make_plan.h"
#include "tests/attention_case.h"

namespace tessera::cpu {
namespace {

using testing::AttentionArrays;
using testing::AttentionCase;
using Bits = std::vector<uint8_t>;

// Each case has several blocks of keys, so that tasks wait for their turn.
std::vector<AttentionCase> cases() {
  std::vector<AttentionCase> all;
  for (const char* mask : {"causal", "full", "window(40, 3) | sink(2)"}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
      AttentionCase c;
      c.plan.masks = {*parse_expr(mask)};
      c.plan.q_len = 290, c.plan.kv_len = 410;
      c.plan.tile = {64, 48};
      c.shape = {4, 2, 16, 24, {}, 0};
      c.dtype = dtype;
      c.sinks = c.dlse = true;
      all.push_back(c);
    }
  }
  return all;
}

// Every bit that forward and backward write.
Bits run(AttentionArrays& arrays, Isa isa, int threads) {
  const auto plan = plan::make_plan(arrays.request, arrays.facts);
  CpuOptions options;
  options.isa = isa;
  options.threads = threads;
  const auto work =
      cpu_prepare(*BorrowedBatch::make(arrays.request, arrays.facts), options);
  EXPECT_TRUE(work.ok());
  arrays.clear_outputs();
  const auto& shape = arrays.c.shape;
  const auto ran = cpu_forward(*work, shape, arrays.forward(true), options);
  EXPECT_TRUE(ran.ok());
  EXPECT_EQ(ran->threads, threads);
  EXPECT_TRUE(cpu_backward(*work, shape, arrays.forward(true),
                           arrays.gradients(), options)
                  .ok());
  return arrays.bits();
}

TEST(CpuThreads, AnyNumberOfThemGivesTheSameBits) {
  for (const AttentionCase& c : cases()) {
    AttentionArrays arrays(c);
    for (const Isa isa : machine_isas()) {
      const Bits one = run(arrays, isa, 1);
      for (const int threads : {1, 2, 3, 7, 7}) {
        ASSERT_EQ(run(arrays, isa, threads), one)
            << threads << " threads, " << to_string(isa) << "\n"
            << describe(c);
      }
    }
  }
}

TEST(CpuThreads, ManyCallersGetTheSameBits) {
  const AttentionCase c = cases()[1];
  const Isa isa = machine_isas().back();
  AttentionArrays alone(c);
  const Bits want = run(alone, isa, 1);
  std::vector<std::thread> hosts;
  for (int host = 0; host < 3; ++host) {
    hosts.emplace_back([&] {
      AttentionArrays mine(c);
      for (int again = 0; again < 3; ++again) {
        EXPECT_EQ(run(mine, isa, 3), want);
      }
    });
  }
  for (std::thread& host : hosts) host.join();
}

// One prepared plan serves all callers at once.
TEST(CpuThreads, WorkIsShared) {
  const AttentionCase c = cases()[0];
  AttentionArrays first(c), second(c);
  const auto plan = plan::make_plan(first.request, first.facts);
  const auto work =
      cpu_prepare(*BorrowedBatch::make(first.request, first.facts));
  ASSERT_TRUE(work.ok());
  const auto call = [&](AttentionArrays& arrays) {
    CpuOptions options;
    options.threads = 2;
    EXPECT_TRUE(
        cpu_forward(*work, c.shape, arrays.forward(true), options).ok());
    EXPECT_TRUE(cpu_backward(*work, c.shape, arrays.forward(true),
                             arrays.gradients(), options)
                    .ok());
  };
  std::thread other([&] { call(second); });
  call(first);
  other.join();
  EXPECT_EQ(first.bits(), second.bits());
}

TEST(CpuThreads, TasksOfAHostMayCall) {
  const AttentionCase c = cases()[2];
  const Isa isa = machine_isas().back();
  AttentionArrays alone(c);
  const Bits want = run(alone, isa, 1);
  std::array<Bits, 4> got;
  parallel_for(4, 2, [&](int64_t task, int) {
    AttentionArrays mine(c);
    got[static_cast<size_t>(task)] = run(mine, isa, 2);
  });
  for (const Bits& bits : got) EXPECT_EQ(bits, want);
}

}  // namespace
}  // namespace tessera::cpu
