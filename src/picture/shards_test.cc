// The picture of shards: each query tile is held once and computed once, the
// bars show every shard's numbers, and the matrix shows the report's tiles.
#include "picture/shards.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <regex>
#include <string>

namespace tessera::picture {
namespace {

int64_t number(std::string text) {
  std::erase(text, ',');
  return std::stoll(text);
}

std::vector<std::smatch> all(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  return {std::sregex_iterator(text.begin(), text.end(), regex),
          std::sregex_iterator()};
}

TEST(ShardsPicture, HasAllThatTheReportHas) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    std::mt19937_64 random(seed);
    Request request;
    request.masks = {*parse_mask("causal & documents")};
    request.q_len = request.kv_len = 64 + static_cast<int64_t>(random() % 900);
    request.batch = 1 + static_cast<int64_t>(seed % 3);
    request.tile = {16, 16};
    OwnedFacts facts;
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < request.batch * request.kv_len; ++i) {
      ids.push_back(static_cast<int32_t>(i / 50));
    }
    facts.doc_ids = ids;
    auto batch = OwnedBatch::make(request, std::move(facts));
    ASSERT_TRUE(batch) << batch.error().message;
    ShardOptions options;
    options.shape = {4, 2, 16, 16, {}, 0};
    options.balance = static_cast<Balance>(seed % 4);
    options.uneven = true;
    const Mesh mesh = *parse_mesh(seed % 2 ? "head=2,seq=3" : "data=2,seq=4");
    auto shards = make_shards(*batch, mesh, options);
    ASSERT_TRUE(shards) << shards.error().message;
    const std::string svg = draw_shards(*batch, *shards, "a < b");
    EXPECT_NE(svg.find("a &lt; b"), std::string::npos);

    // If a tile has the same holder and worker, it is drawn once.
    const int64_t tiles = request.batch * batch->plan().forward.rows;
    std::map<std::string, int64_t> seen;
    for (const auto& m : all(svg,
                             "<title>seq [0-9]+ (holds|computes) tiles "
                             "([0-9,]+) to ([0-9,]+) of batch row [0-9]+<")) {
      seen[m[1]] += number(m[3]) - number(m[2]) + 1;
    }
    EXPECT_EQ(seen["holds"], tiles);
    const bool moved = seen.contains("computes");
    if (moved) {
      EXPECT_EQ(seen["computes"], tiles);
    }
    EXPECT_EQ(moved, [&] {
      for (const Shard& s : shards->shards) {
        for (size_t i = 0; i < s.rows.size(); ++i) {
          const bool own = static_cast<int64_t>(i) < s.own_rows;
          if (s.rows[i].tile >= 0 && own != (s.computes[i] != 0)) return true;
        }
      }
      return false;
    }());

    int64_t work = 0, held = 0;
    for (const Shard& s : shards->shards) {
      work += s.work;
      held += s.own_rows;
    }
    for (const auto& m :
         all(svg, "<title>([0-9,]+) (steps|tiles) of data [0-9]+, head")) {
      (m[2] == "steps" ? work : held) -= number(m[1]);
    }
    EXPECT_EQ(work, 0);
    EXPECT_EQ(held, 0);

    const int64_t seq = mesh.size("seq");
    int64_t cells = 0;
    for (const auto& m :
         all(svg,
             "<title>([0-9,]+) tiles from seq ([0-9]+) to seq ([0-9]+)<")) {
      const auto at = static_cast<size_t>(number(m[2]) * seq + number(m[3]));
      EXPECT_EQ(number(m[1]), shards->report.kv_tiles[at]);
      ++cells;
    }
    EXPECT_EQ(cells, seq * seq);
  }
}

}  // namespace
}  // namespace tessera::picture
