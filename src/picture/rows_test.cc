// The picture of packed rows: each row is in a bar of each histogram, and the
// tiles are those that the packer counts.
#include "picture/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <regex>

#include "base/files.h"
#include "tessera/documents.h"
#include "tests/temp_folder.h"

namespace tessera::picture {
namespace {

// Rows of random documents, and their packing for comparison.
struct Packed {
  Rows rows;
  Packing packing;
  PackOptions options;
};

Packed packed(uint64_t seed) {
  std::mt19937_64 random(seed);
  Packed p;
  p.options.tokens = 64 + static_cast<int64_t>(random() % 64);
  p.options.tile = {16, 16};
  p.options.strategy = static_cast<PackStrategy>(seed % 4);
  if (seed % 3 == 0) p.options.mask = *parse_mask("documents & window(9, 0)");
  const testing::TempFolder folder;
  const std::string path = folder.file("a.jsonl");
  std::string text;
  std::vector<int32_t> lengths;
  for (int d = 0; d < 60; ++d) {
    lengths.push_back(static_cast<int32_t>(random() % 90));
    text += "{\"input_ids\": [";
    for (int32_t i = 0; i < lengths.back(); ++i) text += i > 0 ? ",1" : "1";
    text += "]}\n";
  }
  EXPECT_TRUE(write_file(path, text));
  StreamOptions options;
  options.pack = p.options;
  auto stream = RowStream::open(*open_json_lines({path}), options);
  p.rows = *stream->next(1000);
  p.packing = *pack(lengths, p.options);
  return p;
}

TEST(RowsPicture, StatsAreThoseOfTheRows) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Packed p = packed(seed);
    data::RowStats stats;
    ASSERT_TRUE(data::add_row_stats(p.rows, p.options, stats));
    data::RowStats expected;
    const std::vector<int64_t> costs = *row_costs(p.packing, p.options);
    int64_t tiles = 0;
    for (int64_t r = 0; r < p.packing.rows(); ++r) {
      int64_t tokens = 0;
      for (const DocumentPart& part : p.packing.row(r)) tokens += part.length;
      ++expected.filled[tokens];
      ++expected.documents[static_cast<int64_t>(p.packing.row(r).size())];
      ++expected.cost[costs[static_cast<size_t>(r)]];
      tiles += costs[static_cast<size_t>(r)];
    }
    EXPECT_EQ(stats.rows, p.packing.rows());
    EXPECT_EQ(stats.filled, expected.filled);
    EXPECT_EQ(stats.documents, expected.documents);
    EXPECT_EQ(stats.cost, expected.cost);
    EXPECT_EQ(stats.partial + stats.full, tiles);
    const int64_t side = (p.options.tokens + 15) / 16;
    EXPECT_EQ(stats.tiles, stats.rows * side * side);
  }
}

int64_t number(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ','), text.end());
  return std::stoll(text);
}

TEST(RowsPicture, BarsHoldEveryRow) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Packed p = packed(seed);
    data::RowStats stats;
    ASSERT_TRUE(data::add_row_stats(p.rows, p.options, stats));
    const std::string svg = draw_rows(stats, "a < b & c");
    EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
    for (const char* unit : {"tokens", "tiles", "documents"}) {
      const std::regex bar(std::string("<title>([0-9,]+) rows of "
                                       "[0-9,]+( to [0-9,]+)? ") +
                           unit + "</title>");
      int64_t rows = 0;
      for (std::sregex_iterator i(svg.begin(), svg.end(), bar), end; i != end;
           ++i) {
        rows += number((*i)[1]);
      }
      EXPECT_EQ(rows, stats.rows) << unit;
    }
    const std::regex tile("<title>([0-9,]+) (full|partial|empty) tiles<");
    int64_t tiles = 0;
    for (std::sregex_iterator i(svg.begin(), svg.end(), tile), end; i != end;
         ++i) {
      tiles += number((*i)[1]);
    }
    EXPECT_EQ(tiles, stats.tiles);
  }
  // Without rows there is a picture, too.
  EXPECT_NE(draw_rows({}, "nothing").find("0 rows"), std::string::npos);
}

}  // namespace
}  // namespace tessera::picture
