// lanes/cpu/cpu_test.cc: every kernel that this machine runs against the
// reference, within the bounds of lanes/reference/bound.cc: forward, backward
// and counts, over combinations of all options of a call, and in edge cases.
#include "lanes/cpu/cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/backward/backward.h"
#include "kernels/forward/forward.h"
#include "lanes/reference/reference.h"
#include "tests/attention_case.h"
#include "tests/attention_choices.h"
#include "tests/attention_odd.h"
#include "tests/random_case.h"

namespace tessera::cpu {
namespace {

using testing::attention_choices;
using testing::AttentionArrays;
using testing::AttentionCase;
using testing::cpu_fault;
using testing::kCaps;
using testing::kDtypes;
using testing::kOddMasks;
using testing::Layout;
using testing::odd_numbers_fault;
using testing::plain_attention;
using testing::RandomCase;
using testing::Wanted;
using testing::wanted;
using Random = std::mt19937_64;

TEST(Cpu, EveryPairOfChoicesIsRight) {
  const uint64_t seed = testing::first_seed(1);
  const std::vector<AttentionCase> cases = attention_choices(seed);
  for (size_t i = testing::first_case(cases.size()); i < cases.size();
       i += testing::case_stride()) {
    const AttentionCase& c = cases[i];
    ASSERT_TRUE(well_formed(c.plan)) << describe(c);
    if (auto fault = cpu_fault(c)) {
      FAIL() << "run again with TESSERA_SEED=" << seed << "\n"
             << *fault << "\n"
             << describe(c);
    }
  }
}

// ---- Edge cases. ----

void expect_right(const AttentionCase& c) {
  const auto fault = cpu_fault(c);
  EXPECT_FALSE(fault) << *fault << "\n" << describe(c);
}

// The tests here force each ISA of the machine. This test names the kernels of
// other ISAs, which are not judged.
TEST(Cpu, EveryKernelIsJudgedOnThisMachine) {
  const std::vector<Isa> there = machine_isas();
  std::string absent;
  const auto look = [&](const char* name, const auto& variants) {
    for (const auto& v : variants) {
      if (std::ranges::find(there, v.isa) != there.end()) continue;
      absent += std::string(" ") + name + " " + std::string(to_string(v.isa));
    }
  };
  look("forward", kernels::forward_variants());
  look("backward", kernels::backward_variants());
  if (!absent.empty()) GTEST_SKIP() << "this machine cannot run" << absent;
}

TEST(Cpu, LargeLogitsStaySafe) {
  for (const Dtype dtype : kDtypes) {
    for (const double cap : kCaps) {
      for (const bool sinks : {false, true}) {
        AttentionCase c = plain_attention("causal", 100, 140, 64);
        c.q_size = 1e4;
        c.dtype = dtype;
        c.shape.softcap = cap;
        c.sinks = sinks;
        expect_right(c);
      }
    }
  }
}

// With blocks of queries and with few queries, with and without a legal key.
TEST(Cpu, SinkLogitsOfAnySize) {
  for (const Dtype dtype : kDtypes) {
    for (const int64_t queries : {3, 70}) {
      for (const double cap : kCaps) {
        AttentionCase c = plain_attention("documents", queries, 130, 16);
        c.plan.doc_ids = std::vector<int32_t>(130, 1);
        for (size_t i = 1; i < 130; i += 2) (*c.plan.doc_ids)[i] = -1;
        c.shape = {8, 2, 16, 16, {}, cap};
        c.dtype = dtype;
        c.sinks = c.dlse = true;
        c.sink_logits = testing::extreme_sinks();
        expect_right(c);
      }
    }
  }
}

// Scores of -inf beside the least sink logit: the sink has probability 1, and
// the log-sum-exp times log2(e) exceeds float32.
TEST(Cpu, TheLeastSinkLogitIsAboveInfinitelyLowScores) {
  for (const Dtype dtype : kDtypes) {
    for (const int64_t queries : {3, 70}) {
      AttentionCase c = plain_attention("full", queries, 70, 16);
      c.dtype = dtype;
      c.sinks = c.dlse = true;
      c.sink_logits = {-3e38F};
      AttentionArrays arrays(c);
      const auto infinity = std::numeric_limits<double>::infinity();
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t q = 0; q < queries; ++q) arrays.set('q', 0, h, q, 3, 1);
      }
      for (int64_t k = 0; k < 70; ++k) arrays.set('k', 0, 0, k, 3, -infinity);
      const Wanted want = wanted(arrays);
      for (const Isa isa : machine_isas()) {
        EXPECT_EQ(cpu_fault(arrays, want, isa, 1), std::nullopt);
      }
    }
  }
}

// The largest scores that docs/attention.md allows.
TEST(Cpu, LargestScoresStaySafe) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (const int64_t queries : {3, 70}) {
      AttentionCase c = plain_attention("full", queries, 70, 16);
      c.shape = {8, 1, 16, 16, 1.0, 0};
      c.dtype = dtype;
      c.sinks = c.dlse = true;
      c.sink_logits = testing::extreme_sinks();
      AttentionArrays arrays(c);
      for (int64_t h = 0; h < 8; ++h) {
        for (int64_t q = 0; q < queries; ++q) {
          arrays.set('q', 0, h, q, 3, 1.5e19);
        }
      }
      for (int64_t k = 0; k < 70; ++k) {
        arrays.set('k', 0, 0, k, 3, k % 3 == 0 ? 1.5e19 : -1.5e19);
      }
      const Wanted want = wanted(arrays);
      for (const Isa isa : machine_isas()) {
        EXPECT_EQ(cpu_fault(arrays, want, isa, 1), std::nullopt);
      }
    }
  }
}

TEST(Cpu, ManyKeysForFewQueries) {
  for (const Dtype dtype : kDtypes) {
    for (const int64_t queries : {1, 2, 5}) {
      AttentionCase c = plain_attention("causal", queries, 2500, 64);
      c.shape.heads = 4;
      c.dtype = dtype;
      expect_right(c);
      c.plan.masks = {*parse_expr("causal & window(1111, 0)")};
      expect_right(c);
    }
  }
}

// Many intervals of keys per query: a bound falls on every vector lane.
TEST(Cpu, ManyIntervals) {
  for (const char* mask :
       {"!window(3, 3) & !chunk(9)", "chunk(7) | window(40, -1) & !chunk(11)",
        "sink(2) | window(0, 0) | chunk(5) & !causal",
        "!(chunk(3) | window(1, 17)) | window(0, 0)"}) {
    for (const Dtype dtype : kDtypes) {
      AttentionCase c = plain_attention(mask, 150, 210, 24);
      c.dtype = dtype;
      expect_right(c);
    }
  }
}

// Every other row, and all rows of one tile, have no legal key.
TEST(Cpu, RowsWithoutKeys) {
  for (const bool sinks : {false, true}) {
    for (const Dtype dtype : kDtypes) {
      AttentionCase c = plain_attention("documents", 130, 130, 16);
      std::vector<int32_t> ids(130, 0);
      for (size_t i = 0; i < 64; ++i) ids[i] = i % 2 == 0 ? -1 : 1;
      for (size_t i = 64; i < 80; ++i) ids[i] = -1;
      c.plan.doc_ids = ids;
      c.plan.tile = {16, 16};
      c.sinks = sinks;
      c.dlse = true;
      c.dtype = dtype;
      expect_right(c);
    }
  }
}

TEST(Cpu, SubnormalAndHugeNumbers) {
  for (const Dtype dtype : kDtypes) {
    for (const double size : {1e-30, 1e-7, 1e3}) {
      AttentionCase c = plain_attention("causal", 70, 70, 40);
      c.q_size = size;
      c.dtype = dtype;
      expect_right(c);
    }
  }
}

// ---- Numbers that are not finite. ----

TEST(Cpu, WhatIsNotFiniteReachesItsLegalPairsOnly) {
  const size_t cases =
      machine_isas().size() * std::size(kDtypes) * std::size(kOddMasks);
  size_t at = 0;
  for (const Isa isa : machine_isas()) {
    const auto run = [isa](AttentionArrays& arrays, const Wanted& want) {
      return cpu_fault(arrays, want, isa, 1);
    };
    for (const Dtype dtype : kDtypes) {
      for (const char* mask : kOddMasks) {
        if (!testing::takes_case(at++, cases)) continue;
        const auto fault = odd_numbers_fault(mask, dtype, run);
        EXPECT_FALSE(fault) << to_string(isa) << ": " << *fault;
      }
    }
  }
}

// ---- Gradients against differences of the reference's outputs. ----

TEST(Cpu, GradientsAreSlopes) {
  for (const bool capped : {false, true}) {
    AttentionCase c = plain_attention("causal & window(9, 0)", 12, 17, 8);
    c.sinks = c.dlse = true;
    c.shape.softcap = capped ? 2 : 0;
    AttentionArrays arrays(c);
    const Wanted want = wanted(arrays);
    const ForwardTensors t = arrays.forward(true);
    const Gradients to = arrays.gradients();
    const auto wide = [](const TensorView& x) {  // dense, as `plain` has them
      const auto* data = static_cast<const float*>(x.data);
      return std::vector<double>(data, data + x.heads * x.tokens * x.dim);
    };
    std::vector<double> q = wide(t.q), k = wide(t.k), v = wide(t.v);
    const std::vector<double> g = wide(to.dout);
    std::vector<double> z(t.sink_logits->begin(), t.sink_logits->end());
    const auto loss = [&] {
      reference::AttentionInputs in{q, k, v, z};
      const auto out = *reference::reference_forward(arrays.request,
                                                     arrays.facts, c.shape, in);
      double sum = 0;
      for (size_t i = 0; i < g.size(); ++i) {
        if (std::isfinite(g[i])) sum += g[i] * out.out[i];
      }
      for (size_t i = 0; i < out.lse.size(); ++i) {
        sum += double{to.dlse[i]} * out.lse[i];
      }
      return sum;
    };
    for (const Isa isa : machine_isas()) {
      ASSERT_EQ(cpu_fault(arrays, want, isa, 1), std::nullopt);
      const auto expect_slopes =
          [&](const char* name, std::vector<double>& x, const float* gradient,
              const std::vector<reference::Expected>& bound) {
            for (size_t i = 0; i < x.size(); ++i) {
              if (!std::isfinite(x[i])) continue;  // no query reads it
              const double was = x[i];
              double size = 0;  // of the loss
              const auto difference = [&](double step) {
                x[i] = was + step;
                const double up = loss();
                x[i] = was - step;
                const double down = loss();
                x[i] = was;
                size = std::abs(up) + std::abs(down);
                return (up - down) / (2 * step);
              };
              // The error of a central difference: the rounding of the loss, a
              // sum of some hundred terms of its size, and the truncation, by
              // comparison with twice the step.
              constexpr double kStep = 1e-5;
              const double far = difference(2 * kStep);
              const double near = difference(kStep);
              const double off =
                  std::abs(far - near) + 64 * 0x1p-53 * (1 + size) / kStep;
              EXPECT_NEAR(gradient[i], near,
                          off + bound[i].error +
                              reference::kEps32 * std::abs(gradient[i]))
                  << name << " " << i << " " << to_string(isa);
            }
          };
      expect_slopes("dq", q, static_cast<const float*>(to.dq.data), want.dq);
      expect_slopes("dk", k, static_cast<const float*>(to.dk.data), want.dk);
      expect_slopes("dv", v, static_cast<const float*>(to.dv.data), want.dv);
      expect_slopes("dsink", z, to.dsink_logits.data(), want.dsinks);
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
