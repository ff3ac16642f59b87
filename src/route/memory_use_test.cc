// Checks the memory made before picks against its estimate.
#include "route/memory_use.h"

#include <gtest/gtest.h>

#include "route/pool.h"
#include "route/score.h"

namespace tessera::routing {
namespace {

std::vector<RouteRow> rows_of(Request& request, const std::vector<int32_t>& ids,
                              int64_t block) {
  request.masks = {*parse_mask("causal & documents")};
  request.q_len = request.kv_len = static_cast<int64_t>(ids.size());
  Facts facts;
  facts.doc_ids = ids;
  auto rows = route_rows(request, facts, block);
  EXPECT_TRUE(rows) << rows.error().message;
  return *rows;
}

std::vector<int32_t> one_token_each(int32_t tokens) {
  std::vector<int32_t> ids;
  for (int32_t t = 0; t < tokens; ++t) ids.push_back(t);
  return ids;
}

// Documents share panels: no key takes more than its own lane.
TEST(RouteMemory, ShortDocumentsPadNothing) {
  Request request;
  const auto rows = rows_of(request, one_token_each(1000), 256);
  const Compression c{256, 256};
  std::vector<PooledRow> pooled = {find_pooled_keys(rows[0], c)};
  ASSERT_EQ(pooled[0].keys.size(), 1000U);
  std::vector<float> k(2000 * 4, 1);
  pool_keys(rows, TensorView::bhsd(k.data(), Dtype::f32, 1, 2, 1000, 4), 1,
            pooled);
  const ScoreKeys keys = pack_score_keys(pooled[0], c, 256, 2, 4);
  EXPECT_EQ(keys.panel_count, 63);
  EXPECT_EQ(keys.panels.size(), 2U * 63 * 4 * kPanelKeys);
}

// A token that is a document of its own is pooled once for each compression
// block that holds it.
TEST(RouteMemory, PooledKeysAreCountedBeforeTheyAreMade) {
  Request request;
  const auto rows = rows_of(request, one_token_each(1000), 64);
  EXPECT_EQ(count_pooled_keys(rows[0], {64, 64}), 1000);
  const int64_t dense = 64 * 65 / 2 + (1000 - 64) * 64;
  EXPECT_EQ(count_pooled_keys(rows[0], {64, 1}), dense);
  RouteSettings s;
  s.block = s.compression = s.stride = 64;
  const RouteShape shape{4, 2, 32};
  const double few = route_bytes(request, rows, s, shape, 1);
  s.stride = 1;
  const double many = route_bytes(request, rows, s, shape, 1);
  // Values and panels of 2 heads in fp32.
  EXPECT_GT(many - few, static_cast<double>(dense - 1000) * 2 * 2 * 32 * 4);
}

// Memory does not grow with a longer tile or with more metas than there are.
TEST(RouteMemory, TilesAndGroupsAreBounded) {
  Request request;
  request.masks = {*parse_mask("causal & routed(8, 256)")};
  request.q_len = request.kv_len = 1 << 18;
  auto rows = route_rows(request, {}, 256);
  ASSERT_TRUE(rows) << rows.error().message;
  RouteSettings s;
  s.query_tile = 1 << 18;
  const ScoreCut cut = score_cut(request, *rows, s, 0, 2);
  EXPECT_EQ(cut.queries, 256);
  EXPECT_EQ(cut.parts, 1024);
  EXPECT_EQ(cut.scores, 256 * 1024);
  EXPECT_LT(route_bytes(request, *rows, s, {1, 1, 16}, 2), 2.5e8);
  s.hierarchical = true;
  s.top_metas = 65536;
  EXPECT_EQ(metas_kept(request, s), 128);
  // By the query-tile rule one query of each document scores its blocks.
  s.hierarchical = false;
  s.rule = RouteRule::query_tile;
  EXPECT_EQ(score_cut(request, *rows, s, 0, 2).scores, 1024);
}

}  // namespace
}  // namespace tessera::routing
