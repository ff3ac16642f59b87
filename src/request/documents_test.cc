// request/documents_test.cc: tests that document sources become ids.
#include "request/documents.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/npy.h"
#include "request/drawn_documents.h"

namespace tessera::request {
namespace {

using Ids = std::vector<int32_t>;

Ids read(const std::string& source, int64_t batch, int64_t length) {
  auto ids = read_documents(source, "--docs", batch, length);
  EXPECT_TRUE(ids.ok()) << ids.error().message;
  return ids.ok() ? *ids : Ids{};
}

class TempFile {
 public:
  TempFile(const std::string& name, const std::string& bytes)
      : path_(::testing::TempDir() + std::to_string(getpid()) + name) {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~TempFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Documents, LengthsLeavePadding) {
  EXPECT_EQ(read("lengths:2,1,3", 1, 8), (Ids{0, 0, 1, 2, 2, 2, -1, -1}));
  EXPECT_EQ(read("lengths:3", 2, 4), (Ids{0, 0, 0, -1, 0, 0, 0, -1}));
  EXPECT_EQ(read("cu_seqlens:0,2,2,3", 1, 4), (Ids{0, 0, 2, -1}));
}

TEST(Documents, TextHoldsARowOfLengthsPerBatchRow) {
  const TempFile file("rows.txt", "# first\n2\n1 1\n\n\n3, 1  # second\n");
  EXPECT_EQ(read(file.path(), 2, 5), (Ids{0, 0, 1, 2, -1, 0, 0, 0, 1, -1}));
}

TEST(Documents, BoundariesAndPositionsComeFromFiles) {
  const TempFile bounds("bounds.txt", "0 2 3\n\n0, 4 # one\n");
  EXPECT_EQ(read("cu_seqlens:" + bounds.path(), 2, 4),
            (Ids{0, 0, 1, -1, 0, 0, 0, 0}));
  const TempFile positions("positions.txt", "0 1 0 1\n\n5 6\n0 0\n");
  EXPECT_EQ(read("position_ids:" + positions.path(), 2, 4),
            (Ids{0, 0, 1, 1, 0, 0, 1, 2}));
  EXPECT_EQ(read("position_ids:0,1,0", 2, 3), (Ids{0, 0, 1, 0, 0, 1}));

  const int64_t flat[] = {3};
  const int64_t square[] = {2, 3};
  const TempFile one("bounds1.npy", *write_npy(flat, Ids{0, 1, 3}));
  const TempFile two("bounds2.npy", *write_npy(square, Ids{0, 1, 3, 0, 2, 2}));
  EXPECT_EQ(read("cu_seqlens:" + one.path(), 2, 3), (Ids{0, 1, 1, 0, 1, 1}));
  EXPECT_EQ(read("cu_seqlens:" + two.path(), 2, 3), (Ids{0, 1, 1, 0, 0, -1}));
  EXPECT_EQ(read("position_ids:" + two.path(), 2, 3), (Ids{0, 0, 1, 0, 1, 2}));

  const auto error = [](const std::string& source, int64_t batch,
                        int64_t length) {
    auto ids = read_documents(source, "--docs", batch, length);
    return ids ? "no error" : ids.error().message;
  };
  EXPECT_EQ(error("cu_seqlens:" + two.path(), 3, 3),
            "[docs] '" + two.path() +
                "' must have shape [n] or [3, n], found [2, 3]");
  EXPECT_EQ(error("position_ids:" + two.path(), 2, 4),
            "[docs] " + two.path() +
                " must hold a position for each of 4 tokens of a row, found 3");
  EXPECT_EQ(error("position_ids:" + positions.path(), 1, 4),
            "[docs] '" + positions.path() +
                "' must hold a row of position_ids for each of 1 batch rows, "
                "found 2");
  EXPECT_EQ(error("cu_seqlens:" + bounds.path(), 2, 3),
            "[facts] cu_seqlens must end within kv_len 3, found 4");
  EXPECT_EQ(error("position_ids:0,-1", 1, 2),
            "[cli] --docs position_ids must be from 0 to 1073741824, found "
            "-1");
  EXPECT_FALSE(read_documents("cu_seqlens:no/such/file", "--docs", 1, 4).ok());
  EXPECT_EQ(document_file("cu_seqlens:a/b"), "a/b");
  EXPECT_EQ(document_file("position_ids:a"), "a");
  EXPECT_EQ(document_file("a"), "a");
}

TEST(Documents, NpyHoldsOneRowOrAll) {
  const Ids ids = {5, 5, -1, 9};
  const int64_t flat[] = {4};
  const int64_t square[] = {2, 2};
  const TempFile one("one.npy", *write_npy(flat, ids));
  const TempFile two("two.npy", *write_npy(square, ids));
  EXPECT_EQ(read(one.path(), 1, 4), ids);
  EXPECT_EQ(read(one.path(), 2, 4), (Ids{5, 5, -1, 9, 5, 5, -1, 9}));
  EXPECT_EQ(read(two.path(), 2, 2), ids);
  EXPECT_FALSE(read_documents(two.path(), "--docs", 1, 4).ok());
}

TEST(Documents, LognormalHasItsMeanAndItsSeeds) {
  constexpr int64_t kTokens = 1 << 22;
  const Ids ids = lognormal_ids(512, 3, kTokens);
  EXPECT_EQ(ids.front(), 0);
  const double mean =
      static_cast<double>(kTokens) / static_cast<double>(ids.back() + 1);
  // 8192 draws have deviation 512 * sqrt(e - 1); the bound is five deviations
  // of their mean.
  EXPECT_NEAR(mean, 512, 5 * 512 * std::sqrt(1.7183 / 8192));
  // Batch row b draws with seed + b.
  const Ids two = read("lognormal:mean=9,seed=4", 2, 50);
  const Ids a = lognormal_ids(9, 4, 50);
  const Ids b = lognormal_ids(9, 5, 50);
  EXPECT_EQ(Ids(two.begin(), two.begin() + 50), a);
  EXPECT_EQ(Ids(two.begin() + 50, two.end()), b);
  EXPECT_NE(a, b);
  // Lengths are at least 1 and the last one is cut.
  EXPECT_EQ(lognormal_ids(1e-9, 0, 4), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(lognormal_ids(1e300, 0, 4), (Ids{0, 0, 0, 0}));
}

// Golden: benchmarks on different machines must draw the same documents.
TEST(Documents, LognormalIsTheSameEverywhere) {
  const Ids ids = lognormal_ids(4, 7, 40);
  EXPECT_EQ(ids,
            (Ids{0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2,
                 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 4, 5, 6, 7, 8, 8}));
}

}  // namespace
}  // namespace tessera::request
