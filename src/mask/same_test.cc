// mask/same_test.cc: named ids: their meaning, the tiles of two overlays, and
// the texts of explain and errors.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "plan/make_plan.h"
#include "tessera/batch.h"

namespace tessera::mask {
namespace {

// Text, an image of 16 tokens, text, two adjacent images; frames of 32 tokens.
struct Overlays {
  std::vector<int32_t> images, frames;
  Facts facts;
  Request request;

  explicit Overlays(const char* mask) {
    for (int32_t i = 0; i < 64; ++i) {
      const bool text = i < 8 || (i >= 24 && i < 32);
      images.push_back(text ? -1 : i < 24 ? 0 : i < 48 ? 1 : 2);
      frames.push_back(i / 32);
    }
    facts.same_ids = {images, frames};
    request.masks = {*parse_mask(mask)};
    request.q_len = request.kv_len = 64;
    request.tile = {8, 8};
  }
};

TEST(Same, TextIsCausalAndImagesSeeThemselves) {
  const Overlays o("(causal | same(a)) & same(b)");
  const auto legality = Legality::bind(o.request, o.facts);
  ASSERT_TRUE(legality) << legality.error().message;
  int64_t ahead = 0;
  for (int64_t q = 0; q < 64; ++q) {
    for (int64_t k = 0; k < 64; ++k) {
      const int32_t image = o.images[static_cast<size_t>(q)];
      const bool together =
          image >= 0 && image == o.images[static_cast<size_t>(k)];
      const bool want = (k <= q || together) && q / 32 == k / 32;
      ASSERT_EQ(legality->legal(0, 0, q, k), want) << q << ", " << k;
      ahead += want && k > q;
    }
  }
  EXPECT_GT(ahead, 0);
  const auto plan = plan::make_plan(o.request, o.facts);
  ASSERT_TRUE(plan);
  // Row 1 is the first tile of an image; it sees the text before and the image.
  const auto row = plan->forward.row(0, 1);
  ASSERT_EQ(row.size(), 3U);
  for (int64_t c = 0; c < 3; ++c) {
    EXPECT_EQ(row[static_cast<size_t>(c)], Entry::of(c, TileClass::full));
  }
}

TEST(Same, NegativeIdsAreOfNoGroupAndVetoNothing) {
  const Overlays alone("same(a)");
  const auto legality = Legality::bind(alone.request, alone.facts);
  ASSERT_TRUE(legality);
  EXPECT_FALSE(legality->legal(0, 0, 3, 3));  // text
  EXPECT_TRUE(legality->legal(0, 0, 9, 15));
  const Overlays inverse("!same(a)");
  const auto others = Legality::bind(inverse.request, inverse.facts);
  ASSERT_TRUE(others);
  EXPECT_TRUE(others->legal(0, 0, 3, 3));
  EXPECT_FALSE(others->legal(0, 0, 9, 15));
}

TEST(Same, ExplainNamesBothIds) {
  const Overlays o("causal | same(b)");
  const auto legality = Legality::bind(o.request, o.facts);
  ASSERT_TRUE(legality);
  const Explanation e = legality->explain(0, 0, 3, 40);
  EXPECT_FALSE(e.legal);
  ASSERT_EQ(e.expression.size(), 3U);
  EXPECT_EQ(e.expression[2].text, "same(b)");
  EXPECT_EQ(e.expression[2].why, "query id 0, key id 1");
}

TEST(Same, IdsComeBackFromAPlanFile) {
  const Overlays o("causal | same(a) & same(b)");
  const auto batch = BorrowedBatch::make(o.request, o.facts);
  ASSERT_TRUE(batch);
  const auto bytes = encode_plan(*batch);
  ASSERT_TRUE(bytes) << bytes.error().message;
  const auto back = decode_plan(*bytes);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(own_facts(back->facts()), own_facts(o.facts));
  EXPECT_EQ(back->request(), o.request);
  EXPECT_EQ(back->plan(), batch->plan());
}

TEST(Same, FactsOfTheWrongSizeAreRefused) {
  Overlays o("causal | same(a)");
  const auto error = [&] {
    const auto plan = plan::make_plan(o.request, o.facts);
    return plan ? "none" : plan.error().message;
  };
  EXPECT_EQ(error(), "none");
  o.facts.same_ids[1] = Ints(o.frames).subspan(1);
  EXPECT_EQ(error(),
            "[facts] same_b must hold [batch, kv_len] = 64 values, found 63");
  o.facts.same_ids[1].reset();
  o.request.q_len = 65;
  EXPECT_EQ(error(),
            "[facts] a query takes the id at its position, so positions must "
            "be from 0 to 63, found -1 for query 0 of batch row 0 (give "
            "another q_offset)");
  o.request.q_len = 64;
  o.facts.same_ids[0].reset();
  EXPECT_EQ(error(), "[facts] same(a) needs same_a, found none for the mask");
  for (const auto& [name, number] : {std::pair('z', "25"), {'A', "-32"}}) {
    const auto mask = make_mask(same(name));
    ASSERT_FALSE(mask);
    EXPECT_EQ(mask.error().message,
              std::string("[mask] same takes a letter from a to h, found "
                          "number ") +
                  number);
  }
}

}  // namespace
}  // namespace tessera::mask
