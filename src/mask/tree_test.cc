// mask/tree_test.cc: runs of a tree, refused trees, and the plans of trees.
#include "mask/tree.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "plan/make_plan.h"
#include "tessera/plan.h"
#include "tests/random_tree.h"

namespace tessera::mask {
namespace {

using Numbers = std::vector<int32_t>;

Tree tree_of(const Numbers& enter, const Numbers& leave) {
  Tree tree;
  const auto ok = read_tree(enter.data(), leave.data(),
                            static_cast<int64_t>(enter.size()), 0, tree);
  EXPECT_TRUE(ok) << (ok ? "" : ok.error().message);
  return tree;
}

TEST(Tree, RunsAreTokensThatEndTogether) {
  // Runs 0 1 2 | 3 4 | 5, the last two below 2; 6 is a tree of its own.
  const Tree tree = tree_of({0, 1, 2, 3, 4, 5, 6}, {6, 6, 6, 5, 5, 6, 7});
  EXPECT_EQ(tree.start, (Numbers{0, 3, 5, 6, 7}));
  EXPECT_EQ(tree.end, (Numbers{6, 5, 6, 7}));
  EXPECT_EQ(tree.parent, (Numbers{-1, 0, 0, -1}));
  EXPECT_EQ(tree.head, (Numbers{0, 0, 2, 3}));
}

TEST(Tree, NumbersMayLeaveGaps) {
  // The counter rises on enter and on leave; tokens 0 and 1 are still one run.
  const Tree tree = tree_of({-4, -3, 0, 3, 9}, {8, 7, 2, 5, 11});
  EXPECT_EQ(tree.start, (Numbers{0, 2, 3, 4, 5}));
  EXPECT_EQ(tree.end, (Numbers{4, 3, 4, 5}));
  EXPECT_EQ(tree.parent, (Numbers{-1, 0, 0, -1}));
}

TEST(Tree, PathsAreTheTokensThatSeeEachOther) {
  std::mt19937_64 random(3);
  for (int at = 0; at < 200; ++at) {
    const auto n = static_cast<int64_t>(1 + random() % 90);
    Numbers enter, leave;
    testing::append_random_tree(random, n, n, enter, leave);
    ASSERT_TRUE(testing::is_tree(enter.data(), leave.data(), n));
    const Tree tree = tree_of(enter, leave);
    for (int64_t r = 0; r < tree.count(); ++r) {
      const auto last = static_cast<size_t>(tree.start[r + 1] - 1);
      // Cuts the path at each run on it, and once not at all.
      for (int64_t above = -1; above <= r; ++above) {
        const auto cut =
            static_cast<size_t>(above < 0 ? 0 : tree.start[above + 1]);
        if (above >= 0 && leave[cut - 1] <= enter[last]) continue;
        std::vector<Interval> path;
        append_path(tree, r, above, path);
        std::vector<bool> on(static_cast<size_t>(n));
        for (const Interval& i : path) {
          for (int64_t t = i.begin; t < i.end; ++t) {
            EXPECT_FALSE(on[static_cast<size_t>(t)]);
            on[static_cast<size_t>(t)] = true;
          }
        }
        for (size_t k = 0; k < on.size(); ++k) {
          const bool sees = enter[k] <= enter[last] && enter[last] < leave[k];
          ASSERT_EQ(on[k], sees && k >= cut) << "seed 3, tree " << at;
        }
      }
    }
    for (int64_t t = 0; t < n; ++t) {
      int64_t end = t;
      while (end < n &&
             enter[static_cast<size_t>(end)] < leave[static_cast<size_t>(t)]) {
        ++end;
      }
      ASSERT_EQ(end_of_subtree(tree, t), end);
    }
    EXPECT_EQ(end_of_subtree(tree, n), 0);
  }
}

struct Tokens {
  Request request;
  Numbers enter, leave;
  std::optional<Numbers> counts, offsets;

  Result<Plan> plan() const {
    Facts facts;
    facts.tree_enter = enter;
    facts.tree_leave = leave;
    if (counts) facts.valid_token_counts = *counts;
    if (offsets) facts.q_offsets = *offsets;
    return plan::make_plan(request, facts);
  }
  std::string refusal() const {
    const auto made = plan();
    EXPECT_FALSE(made.ok());
    return made.ok() ? "" : made.error().message;
  }
};

Tokens tokens(Numbers enter, Numbers leave) {
  Tokens out;
  out.request.masks = {*parse_mask("tree")};
  out.request.q_len = out.request.kv_len = static_cast<int64_t>(enter.size());
  out.request.tile = {8, 8};
  out.enter = std::move(enter);
  out.leave = std::move(leave);
  return out;
}

TEST(Tree, BadOnesAreRefused) {
  EXPECT_EQ(tokens({0, 2, 2}, {3, 3, 3}).refusal(),
            "[facts] tree_enter must rise from token to token, found 2 after 2 "
            "for token 2 of row 0");
  EXPECT_EQ(tokens({0, 1, 2}, {3, 1, 3}).refusal(),
            "[facts] tree_leave must be above tree_enter, found 1 at 1 for "
            "token 1 of row 0");
  EXPECT_EQ(tokens({0, 1, 2}, {2, 3, 3}).refusal(),
            "[facts] subtrees must be nested, found one that leaves at 3 in "
            "one that leaves at 2 for token 1 of row 0");
  Tokens t = tokens({0, 1, 2}, {3, 3, 3});
  t.offsets = Numbers{1};
  EXPECT_EQ(t.refusal(),
            "[facts] a query is the token at its position, so positions must "
            "be from 0 to 2, found 3 for query 2 of batch row 0 (give another "
            "q_offset)");
  t.offsets = Numbers{-1};
  EXPECT_EQ(t.refusal(),
            "[facts] a query is the token at its position, so positions must "
            "be from 0 to 2, found -1 for query 0 of batch row 0 (give another "
            "q_offset)");
  t.offsets.reset();
  t.leave.pop_back();
  EXPECT_EQ(t.refusal(),
            "[facts] tree_leave must hold [batch, kv_len] = 3 values, found 2");
  Facts facts;
  facts.tree_enter = t.enter;
  const auto made = plan::make_plan(t.request, facts);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message,
            "[facts] tree needs tree_leave, found none for the mask");
}

// Entries from the valid count on are not read, and a query that the count
// vetoes need not be a token.
TEST(Tree, PaddingIsUnread) {
  Tokens t = tokens({0, 1, 2, -9}, {3, 3, 3, -9});
  EXPECT_FALSE(t.plan().ok());
  t.counts = Numbers{3};
  EXPECT_TRUE(t.plan().ok());
  t.offsets = Numbers{2};
  EXPECT_TRUE(t.plan().ok());
}

TEST(Tree, AChainIsCausal) {
  Numbers enter(100), leave(100, 100);
  for (size_t i = 0; i < enter.size(); ++i) enter[i] = static_cast<int32_t>(i);
  Tokens chain = tokens(enter, leave);
  const auto tree = chain.plan();
  chain.request.masks = {*parse_mask("causal")};
  const auto causal = chain.plan();
  ASSERT_TRUE(tree.ok() && causal.ok());
  EXPECT_EQ(tree->forward, causal->forward);
  EXPECT_EQ(tree->transposed, causal->transposed);
  EXPECT_EQ(tree->legal_pairs, causal->legal_pairs);
}

// Tiles between two branches are empty.
TEST(Tree, BranchesDoNotSeeEachOther) {
  // 16 shared tokens, then two branches of 16.
  Numbers enter(48), leave(48, 48);
  for (size_t i = 0; i < enter.size(); ++i) enter[i] = static_cast<int32_t>(i);
  std::fill(leave.begin() + 16, leave.begin() + 32, 32);
  const auto made = tokens(enter, leave).plan();
  ASSERT_TRUE(made.ok());
  std::string classes;
  for (int64_t r = 0; r < 6; ++r) {
    std::string row(6, '.');
    for (const Entry e : made->forward.row(0, r)) {
      row[static_cast<size_t>(e.column())] =
          e.tile_class() == TileClass::full ? 'F' : 'P';
    }
    classes += row + "\n";
  }
  EXPECT_EQ(classes,
            "P.....\n"
            "FP....\n"
            "FFP...\n"
            "FFFP..\n"
            "FF..P.\n"
            "FF..FP\n");
}

}  // namespace
}  // namespace tessera::mask
