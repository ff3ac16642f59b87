// plan/flex_test.cc: BlockMask arrays against golden files from PyTorch and
// against dense booleans judged token by token, and errors for malformed plans.
#include "plan/flex.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "tessera/batch.h"
#include "tests/oracle.h"
#include "tests/random_case.h"

namespace tessera::plan {
namespace {

using Json = nlohmann::json;
using Values = std::vector<int32_t>;

void flatten(const Json& json, Values& out) {
  if (json.is_array()) {
    for (const Json& item : json) flatten(item, out);
  } else {
    out.push_back(json.get<int32_t>());
  }
}

std::optional<Values> read_fact(const Json& facts, const char* name) {
  if (!facts.contains(name)) return std::nullopt;
  Values out;
  flatten(facts[name], out);
  return out;
}

// A golden file's request, facts and number of query heads.
struct Golden {
  Request request;
  OwnedFacts facts;
  int64_t heads = 1;
};

Golden read_golden(const Json& json) {
  Golden g;
  for (const Json& text : json["masks"]) {
    auto mask = parse_mask(text.get<std::string>());
    if (!mask) throw std::runtime_error(mask.error().message);
    g.request.masks.push_back(*mask);
  }
  g.request.batch = json["batch"];
  g.request.q_len = json["q_len"];
  g.request.kv_len = json["kv_len"];
  g.request.tile = {json["tile"][0], json["tile"][1]};
  g.heads = json["heads"];
  const Json& facts = json["facts"];
  if (facts.contains("doc_ids")) {
    g.facts.doc_ids.emplace();
    for (const Json& row : facts["doc_ids"]) {
      for (const Json& run : row) {
        g.facts.doc_ids->insert(g.facts.doc_ids->end(), run[1].get<size_t>(),
                                run[0].get<int32_t>());
      }
    }
  }
  g.facts.q_doc_ids = read_fact(facts, "q_doc_ids");
  g.facts.q_offsets = read_fact(facts, "q_offsets");
  g.facts.prefix_lengths = read_fact(facts, "prefix_lengths");
  g.facts.valid_token_counts = read_fact(facts, "valid_token_counts");
  g.facts.picks = read_fact(facts, "picks");
  if (g.facts.picks) {
    const Json& picks = facts["picks"];
    g.facts.picks_heads = static_cast<int64_t>(picks[0].size());
    g.facts.picks_k = static_cast<int64_t>(picks[0][0][0].size());
  }
  return g;
}

void expect_array(const Json& json, const char* name,
                  const std::vector<int64_t>& shape, const Values& values) {
  const Json& array = json[name];
  EXPECT_EQ(array["dtype"], "torch.int32") << name;
  EXPECT_EQ(array["shape"].get<std::vector<int64_t>>(), shape) << name;
  EXPECT_EQ(array["data"].get<Values>(), values) << name;
}

void expect_equal(const Json& json, const FlexBlockMask& m) {
  const std::vector<int64_t> rows = {m.batch, m.heads, m.rows};
  const std::vector<int64_t> columns = {m.batch, m.heads, m.columns};
  const std::vector<int64_t> forward = {m.batch, m.heads, m.rows, m.columns};
  const std::vector<int64_t> back = {m.batch, m.heads, m.columns, m.rows};
  expect_array(json, "kv_num_blocks", rows, m.kv.num_blocks);
  expect_array(json, "kv_indices", forward, m.kv.indices);
  expect_array(json, "full_kv_num_blocks", rows, m.full_kv.num_blocks);
  expect_array(json, "full_kv_indices", forward, m.full_kv.indices);
  expect_array(json, "q_num_blocks", columns, m.q.num_blocks);
  expect_array(json, "q_indices", back, m.q.indices);
  expect_array(json, "full_q_num_blocks", columns, m.full_q.num_blocks);
  expect_array(json, "full_q_indices", back, m.full_q.indices);
}

TEST(FlexGolden, EveryArrayIsWhatCreateBlockMaskMade) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("tests/golden/flex")) {
    SCOPED_TRACE(entry.path());
    std::ifstream in(entry.path());
    const Json json = Json::parse(in);
    const Golden g = read_golden(json);
    auto batch = OwnedBatch::make(g.request, g.facts);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    auto flex = make_flex(*batch, g.heads);
    ASSERT_TRUE(flex.ok()) << flex.error().message;
    expect_equal(json, *flex);
    ++files;
  }
  EXPECT_GE(files, 45);
}

// Legal pairs per tile, with tiles padded to their whole size, as Flex counts.
struct Counts {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<int64_t> legal;  // [lists, rows, columns]

  int64_t at(int64_t list, int64_t row, int64_t column) const {
    return legal[static_cast<size_t>((list * rows + row) * columns + column)];
  }
};

Counts count_pairs(const testing::RandomCase& c,
                   const testing::Oracle& oracle) {
  Counts n;
  n.rows = (c.q_len + c.tile.q - 1) / c.tile.q;
  n.columns = (c.kv_len + c.tile.kv - 1) / c.tile.kv;
  n.legal.assign(
      static_cast<size_t>(c.batch * oracle.heads() * n.rows * n.columns), 0);
  for (int64_t l = 0; l < c.batch * oracle.heads(); ++l) {
    for (int64_t i = 0; i < c.q_len; ++i) {
      for (int64_t j = 0; j < c.kv_len; ++j) {
        const int64_t row = l * n.rows + i / c.tile.q;
        n.legal[static_cast<size_t>(row * n.columns + j / c.tile.kv)] +=
            oracle.legal(l / oracle.heads(), l % oracle.heads(), i, j);
      }
    }
  }
  return n;
}

// The lists of one kind of tile: listed blocks first, then the others.
FlexLists lists_where(
    int64_t lists, int64_t rows, int64_t columns,
    const std::function<bool(int64_t, int64_t, int64_t)>& listed) {
  FlexLists out;
  for (int64_t l = 0; l < lists; ++l) {
    for (int64_t r = 0; r < rows; ++r) {
      int32_t count = 0;
      for (const bool wanted : {true, false}) {
        for (int64_t c = 0; c < columns; ++c) {
          if (listed(l, r, c) != wanted) continue;
          out.indices.push_back(static_cast<int32_t>(c));
          if (wanted) ++count;
        }
      }
      out.num_blocks.push_back(count);
    }
  }
  return out;
}

std::optional<std::string> flex_fault(const testing::RandomCase& c) {
  const auto request = c.request();
  if (!request) return request.error().message;
  const Facts facts = c.facts();
  const auto batch = BorrowedBatch::make(*request, facts);
  if (!batch) return batch.error().message;
  const testing::Oracle oracle(c.masks, *request, facts);
  const Counts n = count_pairs(c, oracle);
  for (const int64_t repeat : {int64_t{1}, int64_t{3}}) {
    const int64_t heads = oracle.heads() * repeat;
    const auto flex = make_flex(*batch, repeat == 1 ? 0 : heads);
    if (!flex) return flex.error().message;
    if (flex->batch != c.batch || flex->heads != heads ||
        flex->rows != n.rows || flex->columns != n.columns) {
      return "the BlockMask has another shape";
    }
    // List l is query head l % heads; its plan head is that number / `repeat`.
    const auto full = [&](int64_t l, int64_t row, int64_t column) {
      const int64_t plan_list = l / heads * oracle.heads() + l % heads / repeat;
      return n.at(plan_list, row, column) == c.tile.q * c.tile.kv;
    };
    const auto partial = [&](int64_t l, int64_t row, int64_t column) {
      const int64_t plan_list = l / heads * oracle.heads() + l % heads / repeat;
      return n.at(plan_list, row, column) > 0 && !full(l, row, column);
    };
    const auto turned = [](const auto& listed) {
      return [&listed](int64_t l, int64_t r, int64_t col) {
        return listed(l, col, r);
      };
    };
    const int64_t lists = c.batch * heads;
    if (flex->kv != lists_where(lists, n.rows, n.columns, partial)) {
      return "kv differs";
    }
    if (flex->full_kv != lists_where(lists, n.rows, n.columns, full)) {
      return "full_kv differs";
    }
    if (flex->q != lists_where(lists, n.columns, n.rows, turned(partial))) {
      return "q differs";
    }
    if (flex->full_q != lists_where(lists, n.columns, n.rows, turned(full))) {
      return "full_q differs";
    }
  }
  return std::nullopt;
}

TEST(FlexProperty, ListsAreWhatBruteForceSays) {
  const uint64_t first = testing::first_seed(1);
  for (int64_t at = 0; at < testing::case_count(1000); ++at) {
    const auto c = testing::random_case(first + static_cast<uint64_t>(at));
    const auto found = flex_fault(c);
    if (!found) continue;
    FAIL() << "run again with TESSERA_SEED=" << c.seed << " TESSERA_CASES=1\n"
           << *found << "\nshrunk:\n"
           << testing::describe(testing::shrink(c, flex_fault))
           << "\nas found:" << testing::describe(c);
  }
}

// Two rows of two tiles: full, then partial and full; the last column ragged.
Plan small_plan() {
  Plan p;
  p.q_len = 16;
  p.kv_len = 15;
  p.tile = {8, 8};
  p.forward.lists = 1;
  p.forward.rows = 2;
  p.forward.columns = 2;
  p.forward.row_start = {0, 1, 3};
  p.forward.entries = {Entry::of(0, TileClass::full),
                       Entry::of(0, TileClass::partial),
                       Entry::of(1, TileClass::full)};
  p.transposed = transpose(p.forward);
  p.legal_pairs = {64 + 63 + 56};
  return p;
}

TEST(Flex, ARaggedFullTileIsListedAsPartial) {
  const auto flex = flex_of_plan(small_plan());
  ASSERT_TRUE(flex.ok()) << flex.error().message;
  EXPECT_EQ(flex->kv.num_blocks, (Values{0, 2}));
  EXPECT_EQ(flex->kv.indices, (Values{0, 1, 0, 1}));
  EXPECT_EQ(flex->full_kv.num_blocks, (Values{1, 0}));
  EXPECT_EQ(flex->full_kv.indices, (Values{0, 1, 0, 1}));
  EXPECT_EQ(flex->q.num_blocks, (Values{1, 1}));
  EXPECT_EQ(flex->q.indices, (Values{1, 0, 1, 0}));
  EXPECT_EQ(flex->full_q.num_blocks, (Values{1, 0}));
  EXPECT_EQ(flex->full_q.indices, (Values{0, 1, 0, 1}));
}

TEST(Flex, MemoryOfOneThatIsDoneWithServesAgain) {
  const auto right = flex_of_plan(small_plan());
  auto before = flex_of_plan(small_plan());
  ASSERT_TRUE(right.ok() && before.ok());
  const int32_t* const memory = before->q.indices.data();
  before->q.indices.assign(4, 99);
  before->kv.num_blocks.assign(7, 99);
  const auto again = flex_of_plan(small_plan(), 0, &*before);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->q.indices.data(), memory);
  EXPECT_EQ(again->kv, right->kv);
  EXPECT_EQ(again->full_kv, right->full_kv);
  EXPECT_EQ(again->q, right->q);
  EXPECT_EQ(again->full_q, right->full_q);
}

struct Broken {
  const char* name;
  std::function<void(Plan&)> damage;
  int64_t heads;
  std::string message;
};

TEST(Flex, BrokenPlansAndHeadsAreRefused) {
  const Broken cases[] = {
      {"no batch", [](Plan& p) { p.batch = 0; }, 0,
       "[flex] a plan's sizes must be those of a request, found batch 0, heads "
       "1, q_len 16, kv_len 15, tile 8x8"},
      {"heads below zero", [](Plan& p) { p.heads = -2; }, 0,
       "[flex] a plan's sizes must be those of a request, found batch 1, heads "
       "-2, q_len 16, kv_len 15, tile 8x8"},
      {"no queries", [](Plan& p) { p.q_len = 0; }, 0,
       "[flex] a plan's sizes must be those of a request, found batch 1, heads "
       "1, q_len 0, kv_len 15, tile 8x8"},
      {"keys beyond the limit", [](Plan& p) { p.kv_len = INT64_MAX; }, 0,
       "[flex] a plan's sizes must be those of a request, found batch 1, heads "
       "1, q_len 16, kv_len 9223372036854775807, tile 8x8"},
      {"no tile", [](Plan& p) { p.tile.q = 0; }, 0,
       "[flex] a plan's sizes must be those of a request, found batch 1, heads "
       "1, q_len 16, kv_len 15, tile 0x8"},
      {"a wide tile", [](Plan& p) { p.tile.kv = 8192; }, 0,
       "[flex] a plan's sizes must be those of a request, found batch 1, heads "
       "1, q_len 16, kv_len 15, tile 8x8192"},
      {"a row short", [](Plan& p) { p.forward.rows = 1; }, 0,
       "[flex] the forward list must be 1 of 2 rows and 2 columns, found 1 of "
       "1 and 2"},
      {"a default worklist", [](Plan& p) { p.forward = {}; }, 0,
       "[flex] the forward list must be 1 of 2 rows and 2 columns, found 0 of "
       "0 and 0"},
      {"row starts missing", [](Plan& p) { p.forward.row_start = {}; }, 0,
       "[flex] row starts must be 3, found 0"},
      {"starts late", [](Plan& p) { p.forward.row_start[0] = 1; }, 0,
       "[flex] row starts must go from 0 to 3 entries, found 1 to 3"},
      {"ends early", [](Plan& p) { p.forward.row_start[2] = 2; }, 0,
       "[flex] row starts must go from 0 to 3 entries, found 0 to 2"},
      {"runs off", [](Plan& p) { p.forward.row_start[1] = 4000000000; }, 0,
       "[flex] row starts must rise, found 0 to 4000000000 for row 0"},
      {"falls",
       [](Plan& p) {
         p.q_len = 24;
         p.forward.rows = 3;
         p.forward.row_start = {0, 2, 1, 3};
         p.forward.entries[1] = Entry::of(1, TileClass::partial);
         p.transposed.columns = 3;
       },
       0, "[flex] row starts must rise, found 2 to 1 for row 1"},
      {"a column beyond",
       [](Plan& p) { p.forward.entries[0] = Entry::of(2, TileClass::full); }, 0,
       "[flex] columns must ascend below 2, found 2 after -1 for row 0"},
      {"a column twice",
       [](Plan& p) { p.forward.entries[2] = Entry::of(0, TileClass::full); }, 0,
       "[flex] columns must ascend below 2, found 0 after 0 for row 1"},
      {"an empty tile",
       [](Plan& p) { p.forward.entries[0] = Entry::of(0, TileClass::empty); },
       0, "[flex] classes in a list must be 1 or 2, found 0 for row 0"},
      {"a fourth class", [](Plan& p) { p.forward.entries[0].word = 3; }, 0,
       "[flex] classes in a list must be 1 or 2, found 3 for row 0"},
      {"negative heads", [](Plan&) {}, -1,
       "[flex] heads must be a multiple of the plan's heads, found -1 for 1"},
      {"too many heads", [](Plan&) {}, INT64_MAX,
       "[flex] a BlockMask holds at most 268435456 indices an array, found 1 "
       "batch rows of 9223372036854775807 heads of 2 x 2 blocks"},
  };
  for (const Broken& broken : cases) {
    Plan plan = small_plan();
    broken.damage(plan);
    const auto flex = flex_of_plan(plan, broken.heads);
    ASSERT_FALSE(flex.ok()) << broken.name;
    EXPECT_EQ(flex.error().message, broken.message) << broken.name;
  }
}

TEST(Flex, HeadsThatTheMasksDoNotDivideAreRefused) {
  Request request;
  request.masks = {*parse_mask("causal"), *parse_mask("full")};
  request.q_len = request.kv_len = 64;
  request.tile = {32, 32};
  const auto batch = BorrowedBatch::make(request, {});
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const auto flex = make_flex(*batch, 3);
  ASSERT_FALSE(flex.ok());
  EXPECT_EQ(
      flex.error().message,
      "[flex] heads must be a multiple of the plan's heads, found 3 for 2");
}

// A plan of few tiles whose dense arrays would not fit in memory.
TEST(Flex, AHugeBlockMaskIsRefused) {
  Request request;
  request.masks = {*parse_mask("causal & window(0, 0)")};
  request.q_len = request.kv_len = int64_t{1} << 22;
  request.tile = {128, 128};
  const auto batch = BorrowedBatch::make(request, {});
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const auto flex = make_flex(*batch);
  ASSERT_FALSE(flex.ok());
  EXPECT_EQ(flex.error().kind, ErrorKind::limit);
  EXPECT_EQ(flex.error().message,
            "[flex] a BlockMask holds at most 268435456 indices an array, "
            "found 1 batch rows of 1 heads of 32768 x 32768 blocks");
}

}  // namespace
}  // namespace tessera::plan
