// lanes/xla/xla_test.cc: the programs, compiled and run by real plugins,
// against the reference within the bounds of lanes/reference/bound.cc.
#include "tessera/xla.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "tests/attention_case.h"
#include "tests/attention_choices.h"
#include "tests/attention_odd.h"

namespace tessera {
namespace {

using testing::attention_choices;
using testing::AttentionArrays;
using testing::AttentionCase;
using testing::odd_numbers_fault;
using testing::plain_attention;
using testing::Wanted;
using testing::wanted;

constexpr XlaMethod kMethods[] = {XlaMethod::worklist, XlaMethod::chunked,
                                  XlaMethod::dense};
constexpr const char* kPlugins[] = {"xla_cpu_pjrt", "lammps_jax_pjrt_cpu"};

// One lane a plugin and method, so that what is compiled once is kept.
const Result<XlaLane>& lane_of(const std::string& plugin, XlaMethod method) {
  static auto& lanes =
      *new std::map<std::pair<std::string, XlaMethod>, Result<XlaLane>>;
  const auto key = std::pair(plugin, method);
  auto at = lanes.find(key);
  if (at == lanes.end()) {
    XlaOptions options;
    options.plugin = plugin;
    options.method = method;
    at = lanes.emplace(key, XlaLane::open(options)).first;
  }
  return at->second;
}

std::optional<std::string> xla_fault(const XlaLane& lane, XlaMethod method,
                                     AttentionArrays& arrays,
                                     const Wanted& want) {
  const AttentionCase& c = arrays.c;
  const auto plan = make_plan(arrays.request, arrays.facts);
  if (!plan) return plan.error().message;
  const auto fail = [&](const std::string& text) {
    return std::string(to_string(method)) + ": " + text;
  };
  arrays.clear_outputs();
  const auto ran = lane.forward(arrays.request, arrays.facts, *plan, c.shape,
                                arrays.forward(c.lse));
  if (!ran) return fail(ran.error().message);
  const Worklist& w = plan->forward;
  const int64_t group = c.shape.heads / plan->heads;
  const int64_t all = w.lists * w.rows * w.columns * group;
  const int64_t active = static_cast<int64_t>(w.entries.size()) * group;
  const bool listed = method == XlaMethod::worklist;
  const auto counted = [&](const XlaRun& run) {
    return run.tiles_run == (listed ? active : all) &&
           run.tiles_run + run.tiles_skipped == all &&
           run.compiles + run.memory_hits + run.disk_hits == 1;
  };
  if (!counted(*ran)) return fail("the counts of forward are wrong");
  if (auto f = forward_fault(want, arrays.forward(c.lse))) return fail(*f);
  if (auto f = arrays.spilled()) return fail(*f);
  if (!c.lse) {
    const auto again = lane.forward(arrays.request, arrays.facts, *plan,
                                    c.shape, arrays.forward(true));
    if (!again) return fail(again.error().message);
    if (again->memory_hits != 1) return fail("the program was not kept");
  }
  const auto back = lane.backward(arrays.request, arrays.facts, *plan, c.shape,
                                  arrays.backward());
  if (!back) return fail(back.error().message);
  if (!counted(*back)) return fail("the counts of backward are wrong");
  if (auto f = backward_fault(c, want, arrays.backward())) return fail(*f);
  if (auto f = arrays.spilled()) return fail(*f);
  return {};
}

std::optional<std::string> xla_fault(const std::string& plugin,
                                     const AttentionCase& c, XlaMethod method) {
  AttentionArrays arrays(c);
  const Wanted want = wanted(arrays);
  const Result<XlaLane>& lane = lane_of(plugin, method);
  return lane ? xla_fault(*lane, method, arrays, want) : lane.error().message;
}

// A test for each plugin; skipped where it is not there.
class Xla : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto& lane = lane_of(GetParam(), XlaMethod::worklist);
    if (!lane && lane.error().kind == ErrorKind::unavailable) {
      GTEST_SKIP() << lane.error().message;
    }
    ASSERT_TRUE(lane) << lane.error().message;
  }

  void expect_right(const AttentionCase& c,
                    XlaMethod method = XlaMethod::worklist) {
    const auto fault = xla_fault(GetParam(), c, method);
    EXPECT_FALSE(fault) << *fault << "\n" << describe(c);
  }
};
INSTANTIATE_TEST_SUITE_P(Plugins, Xla, ::testing::ValuesIn(kPlugins));

// Compiling takes a second a program, so a run takes some of the many rows of
// choices, each with one method; TESSERA_XLA_STRIDE=1 takes them all.
TEST_P(Xla, ChoicesAreRight) {
  const uint64_t seed = testing::first_seed(1);
  const char* const asked = std::getenv("TESSERA_XLA_STRIDE");
  const size_t stride = asked ? std::strtoul(asked, nullptr, 10) : 31;
  ASSERT_GT(stride, 0U);
  const std::vector<AttentionCase> cases = attention_choices(seed);
  for (size_t i = 0; i < cases.size(); i += stride) {
    const AttentionCase& c = cases[i];
    ASSERT_TRUE(well_formed(c.plan)) << describe(c);
    if (auto fault = xla_fault(GetParam(), c, kMethods[i % 3])) {
      ADD_FAILURE() << "case " << i << ", run again with TESSERA_SEED=" << seed
                    << "\n" << *fault << "\n" << describe(c);
    }
  }
}

TEST_P(Xla, WhatIsNotFiniteReachesItsLegalPairsOnly) {
  for (const XlaMethod method : {XlaMethod::worklist, XlaMethod::chunked}) {
    const Result<XlaLane>& lane = lane_of(GetParam(), method);
    const auto run = [&](AttentionArrays& arrays, const Wanted& want) {
      return xla_fault(*lane, method, arrays, want);
    };
    const Dtype dtype =
        method == XlaMethod::worklist ? Dtype::f32 : Dtype::bf16;
    const auto fault = odd_numbers_fault("!window(6, 6) & causal", dtype, run);
    EXPECT_FALSE(fault) << *fault;
  }
}

TEST_P(Xla, LargeLogitsStaySafe) {
  AttentionCase c = plain_attention("causal", 100, 140, 64);
  c.q_size = 1e4;
  c.sinks = true;
  expect_right(c);
  c.shape.softcap = 15;
  expect_right(c, XlaMethod::dense);
}

// Groups of masks that share K/V heads in part: the units are single heads.
TEST_P(Xla, MasksAndKeysDivideTheHeadsDifferently) {
  AttentionCase c = plain_attention("causal", 70, 90, 16);
  c.plan.masks = {*parse_expr("causal"), *parse_expr("window(9, 3)"),
                  *parse_expr("chunk(16)")};
  c.shape = {6, 2, 16, 24, {}, 0};
  expect_right(c);
  expect_right(c, XlaMethod::dense);
}

TEST_P(Xla, RowsWithoutKeys) {
  AttentionCase c = plain_attention("documents", 130, 130, 16);
  std::vector<int32_t> ids(130, 0);
  for (size_t i = 0; i < 64; ++i) ids[i] = i % 2 == 0 ? -1 : 1;
  for (size_t i = 64; i < 80; ++i) ids[i] = -1;
  c.plan.doc_ids = ids;
  c.plan.tile = {16, 16};
  c.sinks = c.dlse = true;
  expect_right(c);
}

}  // namespace
}  // namespace tessera
