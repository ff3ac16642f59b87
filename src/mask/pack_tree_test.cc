// mask/pack_tree_test.cc: tries of sequences.
#include <gtest/gtest.h>

#include <random>

#include "tessera/facts.h"
#include "tests/random_tree.h"

namespace tessera {
namespace {

using Numbers = std::vector<int32_t>;

Result<PackedTree> pack(const std::vector<Numbers>& sequences) {
  const std::vector<Ints> views(sequences.begin(), sequences.end());
  return pack_tree(views);
}

TEST(PackTree, PrefixesStandOnce) {
  // Children are in order of first appearance, not by number.
  const auto tree = pack({{7, 5, 9}, {7, 1}, {7, 5, 2, 2}, {7, 1}, {3}});
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(tree->tokens, (Numbers{7, 5, 9, 2, 2, 1, 3}));
  EXPECT_EQ(tree->enter, (Numbers{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(tree->leave, (Numbers{6, 5, 3, 5, 5, 6, 7}));
  EXPECT_EQ(tree->depth, (Numbers{0, 1, 2, 2, 3, 1, 0}));
  EXPECT_EQ(tree->path, (Numbers{0, 1, 2, 0, 5, 0, 1, 3, 4, 0, 5, 6}));
  EXPECT_EQ(tree->path_start, (std::vector<int64_t>{0, 3, 5, 9, 11, 12}));
  EXPECT_EQ(tree->tokens_saved(), 5);
}

TEST(PackTree, APathIsWhatItsLastTokenSees) {
  std::mt19937_64 random(11);
  for (int at = 0; at < 300; ++at) {
    std::vector<Numbers> sequences(1 + random() % 8);
    const uint64_t words = 1 + random() % 3;
    for (Numbers& s : sequences) {
      for (uint64_t n = 1 + random() % 12; n > 0; --n) {
        s.push_back(static_cast<int32_t>(random() % words) - 1);
      }
    }
    const auto tree = pack(sequences);
    ASSERT_TRUE(tree.ok());
    const PackedTree& t = *tree;
    ASSERT_TRUE(testing::is_tree(t.enter.data(), t.leave.data(), t.size()));
    ASSERT_EQ(t.sequences(), static_cast<int64_t>(sequences.size()));
    size_t given = 0;
    std::vector<bool> used(t.tokens.size());
    for (size_t s = 0; s < sequences.size(); ++s) {
      given += sequences[s].size();
      const Numbers path(t.path.begin() + t.path_start[s],
                         t.path.begin() + t.path_start[s + 1]);
      ASSERT_EQ(path.size(), sequences[s].size());
      const int32_t last = t.enter[static_cast<size_t>(path.back())];
      Numbers seen;
      for (size_t k = 0; k < t.tokens.size(); ++k) {
        if (t.enter[k] <= last && last < t.leave[k]) {
          seen.push_back(static_cast<int32_t>(k));
        }
      }
      ASSERT_EQ(path, seen);
      for (size_t i = 0; i < path.size(); ++i) {
        const auto node = static_cast<size_t>(path[i]);
        used[node] = true;
        ASSERT_EQ(t.tokens[node], sequences[s][i]);
        ASSERT_EQ(t.depth[node], static_cast<int32_t>(i));
      }
    }
    for (const bool u : used) ASSERT_TRUE(u);
    ASSERT_EQ(t.tokens_saved(), static_cast<int64_t>(given) - t.size());
    // No two children of one token are equal.
    for (size_t a = 0; a < t.tokens.size(); ++a) {
      for (size_t b = a + 1; b < t.tokens.size(); ++b) {
        if (t.depth[a] != t.depth[b] || t.tokens[a] != t.tokens[b]) continue;
        bool siblings = true;
        for (size_t k = 0; k < a; ++k) {
          const bool above_a = t.leave[k] > t.enter[a];
          const bool above_b = t.leave[k] > t.enter[b];
          siblings =
              siblings && (above_a == above_b || t.depth[k] >= t.depth[a]);
        }
        ASSERT_FALSE(siblings) << at << ": " << a << " and " << b;
      }
    }
  }
}

TEST(PackTree, NothingToPackIsRefused) {
  EXPECT_EQ(pack({}).error().message,
            "[tree] sequences must be one or more, found 0");
  EXPECT_EQ(pack({{1}, {}}).error().message,
            "[tree] a sequence must hold one token or more, found 0 for "
            "sequence 1");
}

// A chain of a million tokens needs no recursion.
TEST(PackTree, LongSequencesArePacked) {
  Numbers one(1000000, 5);
  Numbers other = one;
  other.back() = 6;
  const auto tree = pack({one, other});
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(tree->size(), 1000001);
  EXPECT_EQ(tree->tokens_saved(), 999999);
  EXPECT_EQ(tree->depth.back(), 999999);
}

}  // namespace
}  // namespace tessera
