// mask/document_ids_test.cc: conversions to document and segment ids, each
// checked pair by pair against its definition.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "plan/make_plan.h"
#include "tessera/facts.h"

namespace tessera::mask {
namespace {

using Ids = std::vector<int32_t>;

std::string error_of(const Result<Ids>& ids) {
  return ids ? "no error" : ids.error().message;
}

int64_t draw(std::mt19937_64& random, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(random() %
                                      static_cast<uint64_t>(most - least + 1));
}

TEST(DocumentIds, ByHand) {
  EXPECT_EQ(*ids_from_cu_seqlens(Ids{0, 2, 2, 3}, 5), (Ids{0, 0, 2, -1, -1}));
  EXPECT_EQ(*ids_from_cu_seqlens(Ids{0}, 2), (Ids{-1, -1}));
  EXPECT_EQ(*ids_from_position_ids(Ids{0, 1, 2, 0, 1, 0, 1}),
            (Ids{0, 0, 0, 1, 1, 2, 2}));
  // A row may begin anywhere and jump either way; 0, 0 are two documents.
  EXPECT_EQ(*ids_from_position_ids(Ids{7, 8, 10, 11, 3, 0, 0}),
            (Ids{0, 0, 1, 1, 2, 3, 4}));
  EXPECT_EQ(*ids_from_position_ids(Ids{INT32_MAX, INT32_MAX, 0}),
            (Ids{0, 1, 2}));
  // The second row starts anew, though its position follows the first's.
  EXPECT_EQ(*ids_from_position_ids(Ids{0, 1, 2, 3}, 2), (Ids{0, 0, 0, 0}));
  EXPECT_EQ(*segments_from_ids(Ids{5, 5, 9, 5, -1, 5, -3, -7, 5}),
            (Ids{0, 0, 1, 2, -1, 3, -1, -1, 4}));
  EXPECT_EQ(*segments_from_ids(Ids{4, 4, 4, 6}, 2), (Ids{0, 0, 0, 1}));
}

TEST(DocumentIds, RandomBoundariesHoldTheirTokens) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    const int64_t length = draw(random, 1, 60);
    Ids bounds = {0};
    while (draw(random, 0, 4) > 0) {
      bounds.push_back(
          static_cast<int32_t>(draw(random, bounds.back(), length)));
    }
    const auto ids = ids_from_cu_seqlens(bounds, length);
    ASSERT_TRUE(ids) << error_of(ids);
    for (int64_t t = 0; t < length; ++t) {
      int32_t due = -1;
      for (size_t d = 0; d + 1 < bounds.size(); ++d) {
        if (bounds[d] <= t && t < bounds[d + 1]) due = static_cast<int32_t>(d);
      }
      ASSERT_EQ((*ids)[static_cast<size_t>(t)], due) << t;
    }
  }
}

// Two tokens share a document if the positions between them count up by 1.
TEST(DocumentIds, RandomPositionsShareADocumentWhereTheyCountUp) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 500; ++round) {
    const auto batch = static_cast<size_t>(draw(random, 1, 3));
    const auto length = static_cast<size_t>(draw(random, 1, 30));
    Ids positions;
    for (size_t at = 0; at < batch * length; ++at) {
      const bool counts_up = at > 0 && draw(random, 0, 3) > 0;
      positions.push_back(counts_up ? positions.back() + 1
                                    : static_cast<int32_t>(draw(random, 0, 5)));
    }
    const auto ids =
        ids_from_position_ids(positions, static_cast<int64_t>(batch));
    ASSERT_TRUE(ids) << error_of(ids);
    ASSERT_EQ(ids->size(), positions.size());
    for (size_t b = 0; b < batch; ++b) {
      const size_t first = b * length;
      EXPECT_EQ((*ids)[first], 0);
      for (size_t i = first; i < first + length; ++i) {
        bool together = true;
        for (size_t j = i; j < first + length; ++j) {
          if (j > i) together &= positions[j] == positions[j - 1] + 1;
          ASSERT_EQ((*ids)[i] == (*ids)[j], together) << i << " " << j;
        }
      }
    }
  }
}

// Tokens share a segment if all ids between them are equal to theirs. A mask of
// documents over segment ids equals the mask of segments over the ids.
TEST(DocumentIds, RandomSegmentsAreRunsOfAnId) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    const auto batch = static_cast<size_t>(draw(random, 1, 3));
    const auto length = static_cast<size_t>(draw(random, 1, 40));
    Ids ids;
    for (size_t at = 0; at < batch * length; ++at) {
      const bool same = at > 0 && draw(random, 0, 2) > 0;
      ids.push_back(same ? ids.back()
                         : static_cast<int32_t>(draw(random, -2, 3)));
    }
    const auto segments = segments_from_ids(ids, static_cast<int64_t>(batch));
    ASSERT_TRUE(segments) << error_of(segments);
    ASSERT_EQ(segments->size(), ids.size());
    for (size_t b = 0; b < batch; ++b) {
      const size_t first = b * length;
      for (size_t i = first; i < first + length; ++i) {
        ASSERT_EQ((*segments)[i] < 0, ids[i] < 0) << i;
        ASSERT_GE((*segments)[i], -1);
        bool together = true;
        for (size_t j = i; j < first + length; ++j) {
          together &= ids[j] == ids[i];
          if (ids[i] < 0 || ids[j] < 0) continue;
          ASSERT_EQ((*segments)[i] == (*segments)[j], together)
              << i << " " << j;
        }
      }
    }

    Request request;
    request.batch = static_cast<int64_t>(batch);
    request.q_len = request.kv_len = static_cast<int64_t>(length);
    request.tile = {8, 8};
    Facts facts;
    facts.doc_ids = ids;
    request.masks = {*parse_mask("segments")};
    const auto by_runs = plan::make_plan(request, facts);
    facts.doc_ids = *segments;
    request.masks = {*parse_mask("documents")};
    const auto by_ids = plan::make_plan(request, facts);
    ASSERT_TRUE(by_runs) << by_runs.error().message;
    ASSERT_TRUE(by_ids) << by_ids.error().message;
    EXPECT_EQ(by_runs->forward, by_ids->forward);
    EXPECT_EQ(by_runs->legal_pairs, by_ids->legal_pairs);
  }
}

TEST(DocumentIds, WhatIsNoneIsRefused) {
  EXPECT_EQ(error_of(ids_from_cu_seqlens(Ids{}, 4)),
            "[facts] cu_seqlens must begin with 0, found nothing");
  EXPECT_EQ(error_of(ids_from_cu_seqlens(Ids{1, 4}, 4)),
            "[facts] cu_seqlens must begin with 0, found 1");
  EXPECT_EQ(error_of(ids_from_cu_seqlens(Ids{0, 3, 2}, 4)),
            "[facts] cu_seqlens must not fall, found 2 after 3");
  EXPECT_EQ(error_of(ids_from_cu_seqlens(Ids{0, 5}, 4)),
            "[facts] cu_seqlens must end within kv_len 4, found 5");
  EXPECT_EQ(error_of(ids_from_cu_seqlens(Ids{0}, 0)),
            "[facts] kv_len must be from 1 to 1073741824, found 0");
  EXPECT_EQ(error_of(ids_from_position_ids(Ids{0, 1, 0, -1}, 2)),
            "[facts] position_ids must be at least 0, found -1 for token 1 of "
            "row 1");
  EXPECT_EQ(error_of(ids_from_position_ids(Ids{0, 1, 2}, 2)),
            "[facts] position_ids must hold 2 rows of one length from 1 to "
            "1073741824, found 3 values");
  EXPECT_EQ(error_of(ids_from_position_ids(Ids{})),
            "[facts] position_ids must hold 1 rows of one length from 1 to "
            "1073741824, found 0 values");
  EXPECT_EQ(error_of(segments_from_ids(Ids{1}, 0)),
            "[facts] batch must be from 1 to 1048576, found 0");
  EXPECT_EQ(error_of(segments_from_ids(Ids{1, 2, 3}, 2)),
            "[facts] doc_ids must hold 2 rows of one length from 1 to "
            "1073741824, found 3 values");
}

}  // namespace
}  // namespace tessera::mask
