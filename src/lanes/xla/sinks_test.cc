// lanes/xla/sinks_test.cc: sink telemetry of the xla lane, compiled and run by
// real plugins, against fp64 within the bounds of lanes/reference/sink_row.cc.
// The other programs do not change with telemetry.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lanes/reference/sink_row.h"
#include "lanes/xla/lane.h"
#include "tests/attention_case.h"
#include "tests/attention_choices.h"
#include "tests/plugins.h"
#include "tests/random_case.h"

namespace tessera::xla {
namespace {

using testing::AttentionArrays;
using testing::AttentionCase;
using testing::plain_attention;

constexpr XlaMethod kMethods[] = {XlaMethod::worklist, XlaMethod::chunked,
                                  XlaMethod::dense};
constexpr const char* kPlugins[] = {"xla_cpu_pjrt", "lammps_jax_pjrt_cpu"};

XlaLane open(const std::string& plugin, XlaMethod method) {
  XlaOptions options;
  options.plugin = plugin;
  options.method = method;
  return std::move(*XlaLane::open(options));
}

AttentionCall call_of(const AttentionCase& c, bool telemetry) {
  AttentionCall call;
  call.shape = c.shape;
  call.dtype = c.dtype;
  call.sink_logits = c.sinks;
  call.sink_telemetry = telemetry;
  return call;
}

std::optional<std::string> rows_fault(const lanes::SinkRows& got,
                                      AttentionArrays& arrays,
                                      int64_t first_keys) {
  const AttentionShape& s = arrays.c.shape;
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  const auto want =
      reference::sink_rows(*batch, s, arrays.forward(true), first_keys);
  if (!want) return want.error().message;
  std::vector<reference::Expected> mass, entropy;
  std::vector<uint8_t> live;
  for (const reference::SinkRow& row : *want) {
    mass.push_back(row.mass);
    // The mass is a sum of weights over one that is at least 1. Each weight
    // below 2^-126 may have become 0.
    if (row.live) {
      mass.back().error +=
          static_cast<double>(arrays.request.kv_len) * reference::kTiny32;
    }
    entropy.push_back(row.entropy);
    live.push_back(row.live ? 1 : 0);
  }
  if (got.live != live) return "live queries differ";
  for (size_t i = 0; i < live.size(); ++i) {
    if (live[i] == 0 && (got.mass[i] != 0 || got.entropy[i] != 0)) {
      return "a query without a legal key has mass or entropy";
    }
    if (got.mass[i] < 0 || got.mass[i] > 1 || got.entropy[i] < 0) {
      return "mass is not 0 to 1, or entropy below 0";
    }
  }
  for (auto f : {testing::values_fault("mass", mass, got.mass),
                 testing::values_fault("entropy", entropy, got.entropy)}) {
    if (f) return f;
  }
  return {};
}

// Compares mass and entropy for two numbers of first keys, with one program.
std::optional<std::string> fault(const XlaLane& lane, AttentionArrays& arrays) {
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  if (!batch) return batch.error().message;
  const auto work = lane.prepare(*batch, call_of(arrays.c, true));
  if (!work) return work.error().message;
  for (const int64_t first_keys : {1, 5}) {
    const auto got = work->sink_rows(arrays.forward(true), first_keys);
    if (!got) return got.error().message;
    if (auto f = rows_fault(*got, arrays, first_keys)) return f;
  }
  return {};
}

class XlaSinks : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    TESSERA_NEEDS_PLUGINS();
    const auto plugin = testing::real_plugin(GetParam());
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
    ASSERT_TRUE(plugin.ok()) << plugin.error().message;
  }

  void expect_right(AttentionArrays& arrays,
                    XlaMethod method = XlaMethod::worklist) {
    const auto f = fault(open(GetParam(), method), arrays);
    EXPECT_FALSE(f) << *f << "\n"
                    << to_string(method) << "\n"
                    << describe(arrays.c);
  }
  void expect_right(const AttentionCase& c,
                    XlaMethod method = XlaMethod::worklist) {
    AttentionArrays arrays(c);
    expect_right(arrays, method);
  }
};
INSTANTIATE_TEST_SUITE_P(Plugins, XlaSinks, ::testing::ValuesIn(kPlugins));

// Compiling takes most of the time, so there are few cases.
TEST_P(XlaSinks, RandomCasesAreRight) {
  const uint64_t seed = testing::first_seed(1);
  for (int64_t i = 0; i < testing::case_count(9); ++i) {
    const auto c = testing::random_case(seed + static_cast<uint64_t>(i));
    expect_right(testing::random_attention(c), kMethods[i % 3]);
  }
}

TEST_P(XlaSinks, MasksOfHeadsNameTheirOwnDocuments) {
  AttentionCase c = plain_attention("causal", 70, 70, 16);
  c.plan.masks = {*parse_expr("causal & documents"), *parse_expr("segments"),
                  *parse_expr("window(30, 0) | sink(2)")};
  std::vector<int32_t> ids(70, 3);
  for (size_t i = 20; i < 45; ++i) ids[i] = 8;
  for (size_t i = 64; i < 70; ++i) ids[i] = -1;
  c.plan.doc_ids = ids;
  c.plan.tile = {16, 16};
  c.shape = {6, 2, 16, 24, {}, 0};
  c.dtype = Dtype::bf16;
  c.sinks = true;
  for (const XlaMethod method : kMethods) expect_right(c, method);
}

TEST_P(XlaSinks, LargeScores) {
  AttentionCase c = plain_attention("causal", 60, 90, 64);
  c.q_size = 1e4;
  expect_right(c);
  c.sinks = true;
  c.shape.softcap = 15;
  expect_right(c, XlaMethod::chunked);
}

TEST_P(XlaSinks, SinkLogitsOfAnySize) {
  AttentionCase c = plain_attention("causal", 40, 60, 16);
  c.shape.heads = 8;
  c.sinks = true;
  c.sink_logits = testing::extreme_sinks();
  expect_right(c);
}

// Scores so far apart that the sum times the distance exceeds float32.
TEST_P(XlaSinks, ScoresFarApart) {
  for (const bool sinks : {false, true}) {
    AttentionCase c = plain_attention("full", 40, 40);
    c.sinks = sinks;
    c.plan.tile = {16, 16};
    AttentionArrays arrays(c);
    for (int64_t i = 0; i < 40; ++i) {
      arrays.set('q', 0, 0, i, 3, 1e19);
      arrays.set('k', 0, 0, i, 3, i < 16 ? -2e19 : 2e19);
    }
    const XlaLane lane =
        open(GetParam(), sinks ? XlaMethod::chunked : XlaMethod::worklist);
    const auto f = fault(lane, arrays);
    EXPECT_FALSE(f) << *f;
    const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
    const auto work = lane.prepare(*batch, call_of(c, true));
    ASSERT_TRUE(work.ok()) << work.error().message;
    const auto got = work->sink_rows(arrays.forward(true), 20);
    ASSERT_TRUE(got.ok()) << got.error().message;
    // The bounds of sink_row.cc if all scores have the same error. 24 keys
    // count, 4 of them among the first 20. Two sums err in the mass; one sum
    // and 8 roundings err in the entropy.
    const double sums = reference::sum_error(24) + reference::sum_error(4);
    const double entropy = std::log(24.);
    for (size_t q = 0; q < 40; ++q) {
      EXPECT_NEAR(got->mass[q], 4. / 24, 4. / 24 * sums);
      EXPECT_NEAR(got->entropy[q], entropy,
                  reference::sum_error(24) + 8 * reference::kEps32 * entropy);
    }
  }
}

TEST_P(XlaSinks, InfiniteAndNanScores) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const bool sinks : {false, true}) {
    AttentionCase c = plain_attention("causal", 40, 40);
    c.sinks = sinks;
    c.plan.tile = {16, 16};
    const XlaLane lane = open(GetParam(), XlaMethod::worklist);
    for (const double odd :
         {kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
      AttentionArrays arrays(c);
      for (const int64_t k : {0, 1, 2, 17}) arrays.set('k', 0, 0, k, 3, odd);
      const auto f = fault(lane, arrays);
      EXPECT_FALSE(f) << *f << "\n" << odd;
    }
  }
}

TEST_P(XlaSinks, OtherProgramsKnowNothingOfIt) {
  const XlaLane lane = open(GetParam(), XlaMethod::worklist);
  AttentionCase c = plain_attention("causal & documents", 60, 60, 16);
  c.plan.doc_ids = std::vector<int32_t>(60, 1);
  AttentionArrays arrays(c);
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  AttentionCall off = call_of(c, false), on = call_of(c, true);
  off.backward = on.backward = true;
  const auto without = lane.prepare(*batch, off);
  const auto with = lane.prepare(*batch, on);
  ASSERT_TRUE(without.ok() && with.ok());
  EXPECT_EQ(without->prepared_sinks(), nullptr);
  EXPECT_EQ(
      without->sink_rows(arrays.forward(true), 3).error().message,
      "[xla] a call must be prepared with sink_telemetry, found one without");
  ASSERT_NE(with->prepared_sinks(), nullptr);
  EXPECT_EQ(with->prepared_sinks()->compiles, 1);
  std::set<std::string> keys = {with->prepared_sinks()->contract.key};
  for (const bool backward : {false, true}) {
    EXPECT_EQ(with->program_text(backward).value(),
              without->program_text(backward).value());
    const KernelContract& contract = with->prepared(backward)->contract;
    EXPECT_EQ(contract.text, without->prepared(backward)->contract.text);
    EXPECT_EQ(with->prepared(backward)->memory_hits, 1);
    keys.insert(contract.key);
  }
  EXPECT_EQ(keys.size(), 3U);
  EXPECT_NE(with->prepared_sinks()->contract.text.find("\"sinks\""),
            std::string::npos);

  const auto bits = [&](const XlaWork& work, bool telemetry) {
    arrays.clear_outputs();
    EXPECT_TRUE(work.forward(arrays.forward(true)).ok());
    if (telemetry) {
      EXPECT_TRUE(work.sink_rows(arrays.forward(true), 3).ok());
    }
    return arrays.bits();
  };
  EXPECT_EQ(bits(*with, true), bits(*without, false));
}

TEST_P(XlaSinks, WarmingCompilesWhatABatchNeeds) {
  const XlaLane lane = open(GetParam(), XlaMethod::worklist);
  const AttentionCase c = plain_attention("causal", 60, 60, 16);
  AttentionArrays arrays(c);
  arrays.request.ceilings = {64, 0};
  const AttentionCall call = call_of(c, true);
  const auto warm = lane.warm_sinks(arrays.request, arrays.facts, call);
  ASSERT_TRUE(warm.ok()) << warm.error().message;
  EXPECT_EQ(warm->compiles, 1);
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  const auto work = lane.prepare(*batch, call);
  ASSERT_TRUE(work.ok()) << work.error().message;
  EXPECT_EQ(work->prepared_sinks()->memory_hits, 1);
  EXPECT_EQ(work->prepared_sinks()->contract.key, warm->contract.key);
}

}  // namespace
}  // namespace tessera::xla
