// Pooled keys against means from plain loops.
#include "route/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/float16.h"

namespace tessera::routing {
namespace {

// Rows for ids; negative ids and keys from `valid` on have no document.
std::vector<RouteRow> rows_of(const std::vector<int32_t>& ids, int64_t valid,
                              int64_t block) {
  Request request;
  request.masks = {*parse_mask("causal & documents")};
  request.q_len = request.kv_len = static_cast<int64_t>(ids.size());
  const std::vector<int32_t> counts = {static_cast<int32_t>(valid)};
  Facts facts;
  facts.doc_ids = ids;
  facts.valid_token_counts = counts;
  auto rows = route_rows(request, facts, block);
  EXPECT_TRUE(rows) << rows.error().message;
  return *rows;
}

TEST(RoutePool, MeansOfEachBlockAndDocument) {
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < 60; ++trial) {
    const int64_t kv = 1 + static_cast<int64_t>(random() % 50);
    const int64_t valid = static_cast<int64_t>(random() % (kv + 1));
    const int64_t dim = 1 + static_cast<int64_t>(random() % 5);
    const Compression c{1 + static_cast<int64_t>(random() % 9),
                        1 + static_cast<int64_t>(random() % 6)};
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < kv; ++t) {
      const bool stay = t > 0 && random() % 3 != 0;
      ids.push_back(stay ? ids.back() : static_cast<int32_t>(random() % 4) - 1);
    }
    std::vector<float> k;
    for (int64_t i = 0; i < 2 * kv * dim; ++i) k.push_back(normal(random));
    const auto rows = rows_of(ids, valid, 4);
    const TensorView view =
        TensorView::bhsd(k.data(), Dtype::f32, 1, 2, kv, dim);
    std::vector<PooledRow> pooled = {find_pooled_keys(rows[0], c)};
    pool_keys(rows, view, 1 + trial % 3, pooled);

    // The number of each id, in the order of first appearance.
    std::map<int32_t, int32_t> number;
    for (const int32_t id : ids) {
      if (id >= 0) number.try_emplace(id, static_cast<int32_t>(number.size()));
    }
    const PooledRow& row = pooled[0];
    EXPECT_EQ(count_pooled_keys(rows[0], c),
              static_cast<int64_t>(row.keys.size()));
    ASSERT_EQ(row.start.size(), number.size() + 1);
    size_t seen = 0;
    for (const auto& [id, d] : number) {
      for (int64_t index = 0; index * c.stride < kv; ++index) {
        std::vector<int64_t> tokens;
        for (int64_t t = index * c.stride;
             t < std::min(valid, index * c.stride + c.compression); ++t) {
          if (ids[static_cast<size_t>(t)] == id) tokens.push_back(t);
        }
        const auto begin = row.keys.begin() + row.start[static_cast<size_t>(d)];
        const auto end =
            row.keys.begin() + row.start[static_cast<size_t>(d) + 1];
        const auto it = std::find_if(begin, end, [&](const PooledKey& key) {
          return key.index == index;
        });
        ASSERT_EQ(it != end, !tokens.empty()) << "trial " << trial;
        if (tokens.empty()) continue;
        ++seen;
        EXPECT_EQ(it->first, tokens.front());
        EXPECT_EQ(it->last, tokens.back());
        EXPECT_EQ(it->tokens, static_cast<int64_t>(tokens.size()));
        const auto at = it - row.keys.begin();
        for (int64_t h = 0; h < 2; ++h) {
          for (int64_t n = 0; n < dim; ++n) {
            float sum = 0;
            for (const int64_t t : tokens) {
              sum += k[static_cast<size_t>((h * kv + t) * dim + n)];
            }
            const auto keys = static_cast<int64_t>(row.keys.size());
            EXPECT_EQ(
                row.values[static_cast<size_t>((h * keys + at) * dim + n)],
                sum / static_cast<float>(tokens.size()));
          }
        }
      }
    }
    EXPECT_EQ(seen, row.keys.size()) << "trial " << trial;
  }
}

TEST(RoutePool, SixteenBitKeysAreAddedAsFloats) {
  const std::vector<float> numbers = {1, 0.0078125F, 3, -2};
  std::vector<uint16_t> bf16, f16;
  for (const float x : numbers) {
    bf16.push_back(to_bf16(static_cast<double>(x)));
    f16.push_back(to_f16(static_cast<double>(x)));
  }
  const auto rows = rows_of({0, 0, 0, 0}, 4, 4);
  for (const auto& [dtype, data] :
       {std::pair(Dtype::bf16, &bf16), std::pair(Dtype::f16, &f16)}) {
    std::vector<PooledRow> pooled = {find_pooled_keys(rows[0], {4, 4})};
    pool_keys(rows, TensorView::bhsd(data->data(), dtype, 1, 1, 4, 1), 1,
              pooled);
    // The sum needs more precision than either 16-bit type has.
    EXPECT_EQ(pooled[0].values, std::vector<float>{2.0078125F / 4});
  }
}

}  // namespace
}  // namespace tessera::routing
