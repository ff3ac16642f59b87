// lanes/mosaic/arrays_test.cc: a pair is legal by the arrays where it is legal
// by the definitions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "lanes/mosaic/rule.h"
#include "mask/canonical.h"
#include "plan/make_plan.h"
#include "tessera/mosaic.h"
#include "tessera/plan.h"
#include "tests/hold_for_all.h"

namespace tessera {
namespace {

using testing::describe;
using testing::Fault;
using testing::hold_for_all;
using testing::RandomCase;

// A random conjunction of what the kernel knows and the case has facts for.
Expr conjunction(const RandomCase& c) {
  std::mt19937_64 random(c.seed);
  auto flip = [&] { return random() % 2 == 0; };
  auto distance = [&] {
    return static_cast<int64_t>(random() % 24) - 1;  // -1 is off
  };
  Expr e = full();
  if (flip()) e = e & causal();
  if (flip()) e = e & window(distance(), distance());
  if (flip()) e = e & window(distance(), distance());
  if (c.doc_ids && flip()) e = e & documents();
  if (c.doc_ids && !c.q_doc_ids && random() % 4 == 0) e = e & segments();
  return e;
}

MosaicKernel room_for(const RandomCase& c, int64_t tiles_per_pass) {
  MosaicKernel kernel;
  kernel.batch = c.batch + 1;
  kernel.q_len = c.q_len + 5;
  kernel.kv_len = c.kv_len + 9;
  kernel.tile = c.tile;
  kernel.steps = 1 << 20;
  kernel.options.tiles_per_pass = tiles_per_pass;
  return kernel;
}

int32_t at(const std::vector<int32_t>& values, int64_t i) {
  return values[static_cast<size_t>(i)];
}

TEST(MosaicArrays, AgreeWithTheDefinitions) {
  int64_t judged = 0;
  hold_for_all(
      [&](const RandomCase& original) -> Fault {
        RandomCase c = original;
        c.masks = {conjunction(c)};
        c.picks.reset();
        if (!testing::well_formed(c)) return {};
        auto request = c.request();
        if (!request) return {};
        const Facts facts = c.facts();
        auto legality = Legality::bind(*request, facts);
        if (!legality) return {};
        auto plan = make_plan(*request, facts);
        if (!plan) return plan.error().message;
        MosaicKernel kernel = room_for(c, 1 + static_cast<int64_t>(c.seed % 4));
        kernel.mask = folded_text(request->masks.front().expr);
        auto arrays =
            make_mosaic_arrays(*BorrowedBatch::make(*request, facts), kernel);
        if (!arrays) return arrays.error().message;
        auto rule = mosaic::rule_of(request->masks.front());
        if (!rule) return rule.error().message;
        ++judged;
        for (int64_t b = 0; b < kernel.batch; ++b) {
          for (int64_t q = 0; q < kernel.q_len; ++q) {
            for (int64_t k = 0; k < kernel.kv_len; ++k) {
              const int64_t d = k - q - at(arrays->bounds, 2 + b);
              const bool found =
                  at(arrays->q_ids, b * kernel.q_len + q) ==
                      at(arrays->kv_ids, b * kernel.kv_len + k) &&
                  (!rule->low || d >= at(arrays->bounds, 0)) &&
                  (!rule->high || d <= at(arrays->bounds, 1));
              const bool due = b < c.batch && q < c.q_len && k < c.kv_len &&
                               legality->legal(b, 0, q, k);
              if (found != due) {
                return fmt::format("row {} query {} key {}: found {} for {}", b,
                                   q, k, found, due);
              }
            }
          }
        }
        return {};
      },
      400);
  EXPECT_GT(judged, testing::case_count(400) / 4);
}

struct Small {
  Request request;
  MosaicKernel kernel;

  explicit Small(const char* mask) {
    request.masks = {*parse_mask(mask)};
    request.q_len = request.kv_len = 300;
    request.tile = {128, 128};
    kernel.batch = 1;
    kernel.q_len = kernel.kv_len = 384;
    kernel.steps = 12;
    kernel.options.tiles_per_pass = 2;
    kernel.tile = request.tile;
    kernel.mask = folded_text(request.masks.front().expr);
  }
  std::string error() const {
    auto r = make_mosaic_arrays(*BorrowedBatch::make(request, {}), kernel);
    return r ? "no error" : r.error().message;
  }
};

TEST(MosaicArrays, RowsAreFilledUpToWholePasses) {
  const Small s("causal");
  auto arrays =
      make_mosaic_arrays(*BorrowedBatch::make(s.request, {}), s.kernel);
  ASSERT_TRUE(arrays.ok()) << arrays.error().message;
  // Rows of 1, 2 and 3 tiles; two tiles a pass: 2 + 2 + 4 steps.
  EXPECT_EQ(arrays->range, (std::vector<int32_t>{0, 8}));
  const int classes[] = {1, 0, 2, 1, 2, 2, 1, 0, 0, 0, 0, 0};
  const int columns[] = {0, 0, 0, 1, 0, 1, 2, 2, 0, 0, 0, 0};
  ASSERT_EQ(arrays->steps.size(), 12u);
  for (size_t i = 0; i < 12; ++i) {
    const Step step{static_cast<uint32_t>(arrays->steps[i])};
    // The last row crosses q_len: its full tiles are class 3.
    const int due = i == 4 || i == 5 ? 3 : classes[i];
    EXPECT_EQ(step.step_class(), due) << i;
    EXPECT_EQ(step.column(), columns[i]) << i;
  }
}

// What no pair can reach is drawn in, so that the kernel's sums stay in 32
// bits.
TEST(MosaicArrays, BoundsBeyondEveryPairAreDrawnIn) {
  for (const auto& [mask, low, high] :
       {std::tuple{"window(-1, 2147483647)", 0, 384},
        std::tuple{"window(2147483647, 7)", -384, 7},
        std::tuple{"window(5, 2147483647)", -5, 384}}) {
    const Small s(mask);
    auto arrays =
        make_mosaic_arrays(*BorrowedBatch::make(s.request, {}), s.kernel);
    ASSERT_TRUE(arrays.ok()) << arrays.error().message;
    EXPECT_EQ(arrays->bounds, (std::vector<int32_t>{low, high, 0})) << mask;
  }
  Small far("window(0, 5)");
  const std::vector<int32_t> offset = {(1 << 30) - 1};
  Facts facts;
  facts.q_offsets = Ints(offset);
  auto fits =
      make_mosaic_arrays(*BorrowedBatch::make(far.request, facts), far.kernel);
  EXPECT_TRUE(fits.ok()) << fits.error().message;
}

TEST(MosaicArrays, ABatchThatDoesNotFitIsRefused) {
  Small steps("causal");
  steps.kernel.steps = 7;
  EXPECT_EQ(steps.error(), "[mosaic] steps must fit the kernel's 7, found 8");
  Small keys("causal");
  keys.kernel.kv_len = 256;
  EXPECT_EQ(keys.error(),
            "[mosaic] kv_len must fit the kernel's 256, found 300");
  Small tile("causal");
  tile.kernel.tile = {256, 128};
  EXPECT_EQ(tile.error(),
            "[mosaic] a plan's tile must be the kernel's 256x128, found "
            "128x128");
  Small mask("causal | window(3, 0)");
  EXPECT_EQ(mask.error(),
            "[mosaic] a mask must be causal, window, documents, segments or "
            "full joined by &, found causal | window(3, 0)");
  Small other("causal");
  other.kernel.mask = "window(0, 0)";
  EXPECT_EQ(
      other.error(),
      "[mosaic] the mask must be the kernel's window(0, 0), found causal");
}

}  // namespace
}  // namespace tessera
