// cli/tree/command_test.cc: `tessera tree`, its file, and plans with it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/safetensors.h"
#include "tessera/batch.h"
#include "tests/program.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using Numbers = std::vector<int32_t>;

class TreeProgram : public tessera::testing::Program {
 protected:
  void SetUp() override {
    ASSERT_TRUE(write_file(file("prompts.jsonl"),
                           "{\"input_ids\": [7, 8, 9, 9]}\n"
                           "{\"input_ids\": [7, 8, 1]}\n"
                           "{\"input_ids\": [7, 8, 9, 2]}\n"));
  }
  json statistics(const std::string& tree, int64_t tokens) {
    program({"plan", "--mask", "tree", "--q-len", std::to_string(tokens),
             "--tile", "8", "--tree", tree, "--json"});
    EXPECT_EQ(code_, 0) << err_;
    return json::parse(out_);
  }
};

TEST_F(TreeProgram, CountsWhatItSaves) {
  program({"tree", file("prompts.jsonl"), "--json"});
  ASSERT_EQ(code_, 0) << err_;
  EXPECT_EQ(json::parse(out_), (json{{"sequences", 3},
                                     {"tokens_in", 11},
                                     {"tokens", 6},
                                     {"tokens_saved", 5},
                                     {"longest", 4}}));
  program({"tree", file("prompts.jsonl")});
  EXPECT_NE(out_.find("5 saved (45.5%)"), std::string::npos) << out_;
}

// The file has 6 tokens. The row has as many only if a mask names `tree`.
TEST_F(TreeProgram, ATreeThatNoMaskNamesCutsNothing) {
  const auto valid = [&](const char* mask,
                         const std::vector<std::string>& more = {}) {
    std::vector<std::string> a = {"plan",    "--mask",    mask,
                                  "--q-len", "16",        "--tile",
                                  "8",       "--tree",    file("prompts.jsonl"),
                                  "-o",      file("plan")};
    a.insert(a.end(), more.begin(), more.end());
    program(a);
    EXPECT_EQ(code_, 0) << err_;
    const auto saved = load_plan(file("plan"));
    EXPECT_TRUE(saved) << saved.error().message;
    return saved->facts().valid_token_counts
               ? (*saved->facts().valid_token_counts)[0]
               : -1;
  };
  EXPECT_EQ(valid("causal & tree"), 6);
  EXPECT_EQ(valid("causal"), -1);
  EXPECT_NE(err_.find("found tree_enter unused"), std::string::npos) << err_;
  EXPECT_EQ(valid("causal", {"--valid", "9"}), 9);
}

TEST_F(TreeProgram, WritesWhatAPlanReads) {
  program({"tree", file("prompts.jsonl"), "-o", file("tree.safetensors")});
  ASSERT_EQ(code_, 0) << err_;
  const auto bytes = read_file(file("tree.safetensors"), 1 << 20);
  ASSERT_TRUE(bytes.ok());
  const auto arrays = parse_safetensors(*bytes);
  ASSERT_TRUE(arrays.ok());
  const auto numbers = [&](const char* name) {
    return *int32_values(*arrays->find(name), name);
  };
  EXPECT_EQ(numbers("tokens"), (Numbers{7, 8, 9, 9, 2, 1}));
  EXPECT_EQ(numbers("enter"), (Numbers{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(numbers("leave"), (Numbers{6, 6, 5, 4, 5, 6}));
  EXPECT_EQ(numbers("depth"), (Numbers{0, 1, 2, 3, 3, 2}));
  EXPECT_EQ(numbers("path"), (Numbers{0, 1, 2, 3, 0, 1, 5, 0, 1, 2, 4}));
  EXPECT_EQ(numbers("path_start"), (Numbers{0, 4, 7, 11}));

  const json whole = statistics(file("tree.safetensors"), 6);
  EXPECT_EQ(whole["pairs"]["needed"], 1 + 2 + 3 + 4 + 4 + 3);
  EXPECT_EQ(statistics(file("prompts.jsonl"), 6)["digest"], whole["digest"]);
  // Tokens after the tree are padding.
  EXPECT_EQ(statistics(file("prompts.jsonl"), 20)["pairs"]["needed"],
            whole["pairs"]["needed"]);
}

}  // namespace
}  // namespace tessera::cli
