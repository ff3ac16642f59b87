// request/trees_test.cc: tests that trees from files fill the rows of a batch,
// and that drawn ones are trees.
#include "request/trees.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/safetensors.h"
#include "tessera/batch.h"
#include "tests/little_memory.h"
#include "tests/random_tree.h"
#include "tests/temp_folder.h"

namespace tessera::request {
namespace {

using Numbers = std::vector<int32_t>;

TEST(Trees, RowsOfABatchMayDiffer) {
  Request request;
  request.masks = {*parse_mask("tree")};
  request.batch = 2;
  request.q_len = request.kv_len = 4;
  Safetensors arrays;
  const int32_t enter[] = {0, 1, 2, 5, 6, 7};
  const int32_t leave[] = {3, 2, 3, 6, 8, 8};
  const auto bytes_of_numbers = [](const int32_t(&values)[6]) {
    return std::string_view(reinterpret_cast<const char*>(values),
                            sizeof(values));
  };
  arrays.tensors["enter"] = {Dtype::i32, {2, 3}, bytes_of_numbers(enter)};
  arrays.tensors["leave"] = {Dtype::i32, {2, 3}, bytes_of_numbers(leave)};
  const tessera::testing::TempFolder folder;
  const std::string file = folder.file("two.safetensors");
  ASSERT_TRUE(write_file(file, *write_safetensors(arrays)));
  OwnedFacts facts;
  ASSERT_TRUE(read_tree_fact(file, request, facts).ok());
  EXPECT_EQ(facts.tree_enter, (Numbers{0, 1, 2, 0, 5, 6, 7, 0}));
  EXPECT_EQ(facts.tree_leave, (Numbers{3, 2, 3, 0, 6, 8, 8, 0}));
  EXPECT_EQ(facts.valid_token_counts, (Numbers{3, 3}));
  // Given counts stay as they are.
  facts = {};
  facts.valid_token_counts = Numbers{1, 3};
  ASSERT_TRUE(read_tree_fact(file, request, facts).ok());
  EXPECT_EQ(facts.valid_token_counts, (Numbers{1, 3}));
}

#ifndef TESSERA_SANITIZED
TEST(Trees, OneThatIsTooLongIsRefusedBeforeEachRowHasIt) {
  Request request;
  request.masks = {*parse_mask("tree")};
  request.batch = kMaxBatch;
  request.q_len = request.kv_len = 8;
  const tessera::testing::TempFolder folder;
  const std::string lines = folder.file("long.jsonl");
  std::string ids = "0";
  for (int i = 1; i < 1000; ++i) ids += ", " + std::to_string(i);
  ASSERT_TRUE(write_file(lines, "{\"input_ids\": [" + ids + "]}\n"));
  const Numbers ones(1000, 1);
  const std::string_view bytes(reinterpret_cast<const char*>(ones.data()),
                               sizeof(ones[0]) * ones.size());
  Safetensors arrays;
  arrays.tensors["enter"] = {Dtype::i32, {1000}, bytes};
  arrays.tensors["leave"] = {Dtype::i32, {1000}, bytes};
  const std::string tensors = folder.file("long.safetensors");
  ASSERT_TRUE(write_file(tensors, *write_safetensors(arrays)));
  for (const std::string& file : {lines, tensors}) {
    EXPECT_TRUE(tessera::testing::ends_by_itself(64 << 20, [&] {
      try {
        OwnedFacts facts;
        const auto read = read_tree_fact(file, request, facts);
        if (!read.ok() &&
            read.error().message ==
                "[tree] a tree must fit the row of 8 tokens, found 1000") {
          return;
        }
      } catch (const std::bad_alloc&) {
      }
      _exit(1);
    })) << file;
  }
}
#endif

TEST(Trees, DrawnOnesAreTreesAndAlwaysTheSame) {
  Request request;
  request.masks = {*parse_mask("tree")};
  request.batch = 2;
  request.q_len = request.kv_len = 300;
  OwnedFacts one, again, other;
  ASSERT_TRUE(read_tree_fact("random:run=10,seed=4", request, one).ok());
  ASSERT_TRUE(read_tree_fact("random:seed=4,run=10", request, again).ok());
  ASSERT_TRUE(read_tree_fact("random:run=10,seed=5", request, other).ok());
  EXPECT_EQ(one, again);
  EXPECT_FALSE(one.valid_token_counts);
  for (size_t b = 0; b < 2; ++b) {
    EXPECT_TRUE(tessera::testing::is_tree(one.tree_enter->data() + 300 * b,
                                          one.tree_leave->data() + 300 * b,
                                          300));
  }
  // Row b draws with seed + b.
  EXPECT_TRUE(std::equal(other.tree_leave->begin(),
                         other.tree_leave->begin() + 300,
                         one.tree_leave->begin() + 300));
  EXPECT_NE(*one.tree_leave, *other.tree_leave);
  EXPECT_NE(one.tree_leave, std::optional(Numbers(600, 300)));
}

}  // namespace
}  // namespace tessera::request
