// plan/layouts_page_test.cc: the numbers in docs/layouts.md's example.
#include <gtest/gtest.h>

#include "plan/make_plan.h"
#include "tessera/batch.h"
#include "tessera/layouts.h"

namespace tessera::plan {
namespace {

class LayoutsPage : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 28; ++i) ids_.push_back(i < 8 ? 0 : i < 16 ? -1 : 1);
    request_.masks = {*parse_mask("causal & documents")};
    request_.q_len = request_.kv_len = 28;
    request_.tile = {8, 8};
    facts_.doc_ids = ids_;
    auto plan = make_plan(request_, facts_);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    plan_ = *plan;
  }

  static std::vector<uint32_t> words(const Worklist& w) {
    std::vector<uint32_t> out;
    for (const Entry e : w.entries) out.push_back(e.word);
    return out;
  }
  static std::vector<uint32_t> words(const Steps& s) {
    std::vector<uint32_t> out;
    for (const Step step : s.steps) out.push_back(step.word);
    return out;
  }

  std::vector<int32_t> ids_;
  Request request_;
  Facts facts_;
  Plan plan_;
};

using Words = std::vector<uint32_t>;

TEST_F(LayoutsPage, Lists) {
  EXPECT_EQ(plan_.forward.row_start, (Words{0, 1, 1, 2, 4}));
  EXPECT_EQ(words(plan_.forward), (Words{1, 9, 10, 13}));
  EXPECT_EQ(plan_.transposed.row_start, (Words{0, 1, 1, 3, 4}));
  EXPECT_EQ(words(plan_.transposed), (Words{1, 9, 14, 13}));
}

TEST_F(LayoutsPage, PackedSteps) {
  const auto batch = BorrowedBatch::make(request_, facts_);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const Steps forward = *pack_steps(*batch, false);
  EXPECT_EQ(words(forward), (Words{0x7, 0x40003, 0x80027, 0xc002e, 0xc0035}));
  EXPECT_EQ(forward.range, (Words{0, 5}));
  EXPECT_EQ(words(*pack_steps(*batch, true)),
            (Words{0x7, 0x40003, 0x80026, 0x8003d, 0xc0037}));
}

TEST_F(LayoutsPage, Rectangle) {
  const Rectangle r = *make_rectangle(plan_.forward, grid_width(plan_.forward));
  EXPECT_EQ(r.width, 2);
  const MaskBlocks masks =
      *make_mask_blocks(*BorrowedBatch::make(request_, facts_), false, r.width);
  EXPECT_EQ(masks.mask_next, (std::vector<int32_t>{0, 0, 0, 0, 0, 0, 0, 1}));
  ASSERT_EQ(masks.blocks.size(), 2u * 64);
  for (size_t i = 0; i < 64; ++i) {
    const size_t q = i / 8, k = i % 8;
    EXPECT_EQ(masks.blocks[i], k <= q);
    EXPECT_EQ(masks.blocks[64 + i], k <= q && q < 4);
  }
  EXPECT_EQ(r.column, (std::vector<int32_t>{0, 0, 0, 0, 2, 0, 2, 3}));
  EXPECT_EQ(r.tile_class, (std::vector<uint8_t>{1, 0, 0, 0, 1, 0, 2, 1}));
}

TEST_F(LayoutsPage, RegroupedRows) {
  const Regrouped g = *regroup(plan_.forward, 2, 2);
  EXPECT_EQ(g.columns, (Words{0, 2, 3}));
  EXPECT_EQ(g.classes, (std::vector<uint8_t>{1, 0, 1, 2, 0, 1}));
  EXPECT_EQ(g.steps, 2);
  EXPECT_EQ(g.dead_tiles, 2);
}

TEST_F(LayoutsPage, Bitmaps) {
  const Bitmaps b = *make_bitmaps(*BorrowedBatch::make(request_, facts_));
  EXPECT_EQ(b.of_entry, (std::vector<int32_t>{0, 0, -1, 1}));
  EXPECT_EQ(b.words, (std::vector<uint64_t>{0xff7f3f1f0f070301, 0x0f070301}));
}

TEST_F(LayoutsPage, Statistics) {
  const Statistics s = *make_statistics(*BorrowedBatch::make(request_, facts_));
  EXPECT_EQ(s.pairs_needed, 114);
  EXPECT_EQ(s.pairs_paid, 176);
  EXPECT_EQ(s.pairs_total, 784);
}

}  // namespace
}  // namespace tessera::plan
