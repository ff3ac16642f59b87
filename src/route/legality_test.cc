// Illegal picks and why they are removed; refused picks of another router.
#include "route/legality.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tessera::routing {
namespace {

using Ids = std::vector<int32_t>;

// 12 keys in blocks of 4: documents A A A B | B B B B | A - - -. Valid keys are
// below 11; query i has position i.
class RouteLegality : public ::testing::Test {
 protected:
  RouteLegality() {
    request_.masks = {*parse_mask("causal & documents")};
    request_.q_len = request_.kv_len = 12;
    facts_.doc_ids = ids_;
    facts_.valid_token_counts = valid_;
    auto rows = route_rows(request_, facts_, 4);
    EXPECT_TRUE(rows) << rows.error().message;
    rows_ = *rows;
  }

  // Three slots a query, all unused except those of `query`.
  Ids with(int64_t query, const Ids& picks) const {
    Ids out(36, -1);
    std::copy(picks.begin(), picks.end(), out.begin() + query * 3);
    return out;
  }
  Removed remove(Ids& picks) const {
    return remove_illegal(rows_, sizes_, 2, picks);
  }

  const Ids ids_ = {7, 7, 7, 2, 2, 2, 2, 2, 7, -1, -1, -1};
  const Ids valid_ = {11};
  Request request_;
  Facts facts_;
  std::vector<RouteRow> rows_;
  const PickSizes sizes_{1, 1, 12, 3, 4, 12};
};

TEST_F(RouteLegality, FuturePicksGo) {
  Ids picks = with(2, {0, 2});  // document 7 is in block 2, but later
  const Removed r = remove(picks);
  EXPECT_EQ(picks, with(2, {0}));
  EXPECT_EQ(r.count[static_cast<size_t>(Illegal::future)], 1);
  ASSERT_TRUE(r.first);
  EXPECT_EQ(illegal_pick(*r.first).message,
            "[route] a pick must not be from the future, found block 2 for "
            "query 2 of batch row 0, head 0");
}

TEST_F(RouteLegality, PicksAcrossDocumentsGo) {
  Ids picks = with(8, {0, 1, 2});
  const Removed r = remove(picks);
  EXPECT_EQ(picks, with(8, {0, 2}));
  EXPECT_EQ(r.count[static_cast<size_t>(Illegal::documents)], 1);
  EXPECT_EQ(illegal_pick(*r.first).message,
            "[route] a pick must hold a key of the query's document, found "
            "block 1 for query 8 of batch row 0, head 0");
}

TEST_F(RouteLegality, QueriesThatSeeNothingKeepNothing) {
  for (const int64_t q : {9, 11}) {  // padding; beyond the count as well
    Ids picks = with(q, {0, 1, 2});
    const Removed r = remove(picks);
    EXPECT_EQ(picks, Ids(36, -1));
    EXPECT_EQ(r.count[static_cast<size_t>(Illegal::invalid)], 3);
    EXPECT_EQ(illegal_pick(*r.first).message.substr(0, 44),
              "[route] a pick must hold a valid key for a q");
  }
}

TEST_F(RouteLegality, UnusedSlotsMoveToTheEnd) {
  Ids picks = with(7, {-1, 0, 1});
  const Removed r = remove(picks);
  EXPECT_EQ(picks, with(7, {0, 1}));
  EXPECT_FALSE(r.first);
}

TEST_F(RouteLegality, MalformedPicksAreRefused) {
  const auto message = [&](const Ids& picks, int64_t heads, int64_t k) {
    auto e = check_picks({picks, heads, k}, sizes_, "picks", "query");
    return e ? std::string() : e.error().message;
  };
  EXPECT_EQ(message(with(5, {0, -1, 2}), 1, 3), "");
  EXPECT_EQ(message(with(5, {0, 3}), 1, 3),
            "[route] picks must be from -1 to 2, found 3 for query 5 of batch "
            "row 0, head 0");
  EXPECT_EQ(message(with(5, {-2}), 1, 3),
            "[route] picks must be from -1 to 2, found -2 for query 5 of batch "
            "row 0, head 0");
  EXPECT_EQ(message(with(6, {1, 1}), 1, 3),
            "[route] picks must differ, found 1 twice for query 6 of batch row "
            "0, head 0");
  EXPECT_EQ(message(with(6, {2, 0}), 1, 3),
            "[route] picks must ascend, found 0 after 2 for query 6 of batch "
            "row 0, head 0");
  EXPECT_EQ(message(Ids(35, -1), 1, 3),
            "[route] picks must hold [1, 1, 12, 3] values, found 35");
  EXPECT_EQ(message(Ids(36, -1), 0, 3),
            "[route] picks must have heads and slots of 1 or more, found heads "
            "0 and slots 3");
  EXPECT_NE(message(Ids(36, -1), 1 << 20, int64_t{1} << 30), "");
}

}  // namespace
}  // namespace tessera::routing
