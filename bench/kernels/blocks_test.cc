// bench/kernels/blocks_test.cc: `tessera-bench blocks`: a row for each variant
// of this machine, and reading its peer. The command itself checks the lists.
#include "kernels/blocks/blocks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "bench/harness/temp_folder.h"
#include "bench/kernels/blocks_peer.h"
#include "cli/machine.h"
#include "receipt/machine.h"
#include "tests/program.h"
#include "tests/variable.h"

namespace tessera::bench {
namespace {

using nlohmann::json;

class BlocksBench : public tessera::testing::Program {};

TEST_F(BlocksBench, HasARowForEachVariant) {
  ASSERT_EQ(bench({"blocks", "--heads", "2", "--blocks", "70", "--active",
                   "0.5", "--seconds", "0.001", "--json"}),
            cli::kOk)
      << err_;
  const json result = json::parse(out_);
  std::vector<std::string> names;
  for (const json& row : result["variants"]) {
    names.push_back(row["variant"]);
    EXPECT_GT(row["bytes_us"], 0);
    EXPECT_GT(row["bits_us"], 0);
  }
  std::vector<std::string> want;
  for (const kernels::BlockVariant& v : kernels::block_variants()) {
    if (kernels::runs_here(v)) want.emplace_back(v.name);
  }
  EXPECT_EQ(names, want);
  EXPECT_GT(result["read_us"], 0);
  EXPECT_FALSE(result.contains("goals"));  // only for default sizes
  EXPECT_EQ(bench({"blocks", "--blocks", "0"}), cli::kRefused);
  EXPECT_EQ(bench({"blocks", "--active", "-1"}), cli::kRefused);
}

// Each goal is said to be met or missed by itself, in words and in the file.
TEST_F(BlocksBench, SaysEachGoalAndKeepsTheResult) {
  TempFolder folder;
  ASSERT_TRUE(folder.make().ok());
  const std::string results = folder.file("results");
  const std::string path =
      results + "/" + cli::slug(receipt::cpu_model()) + "/blocks.json";
  const tessera::testing::Arguments args = {"blocks", "--seconds", "0.001",
                                            "--results", results};
  ASSERT_EQ(bench(args), cli::kOk) << err_;
  const auto text = read_file(path, 1 << 20);
  ASSERT_TRUE(text.ok()) << text.error().message;
  const json result = json::parse(*text);
  EXPECT_EQ(result["bench"], "blocks");
  const json& best = result["variants"].back();
  std::string told;
  for (const auto& [door, us] : {std::pair("bytes", 400), {"bits", 200}}) {
    const json& goal = result["goals"][door];
    EXPECT_EQ(goal["us"], us);
    const bool met = best[std::string(door) + "_us"] <= us;
    EXPECT_EQ(goal["met"], met);
    told += std::string(told.empty() ? "Goals:" : ";") + " from " + door + " " +
            std::to_string(us) + " us, " + (met ? "met" : "missed");
  }
  EXPECT_NE(out_.find("\n" + told + ".\n"), std::string::npos) << out_;
  EXPECT_TRUE(out_.ends_with("\n" + path + "\n")) << out_;

  EXPECT_EQ(bench({"blocks", "--heads", "2", "--results", results}),
            cli::kRefused);
  EXPECT_EQ(err_,
            "tessera-bench: [cli] --results is of the sizes that have goals, "
            "found --heads beside it\n");
}

TEST_F(BlocksBench, WithoutAnInterpreterThePeerIsNotMeasured) {
  const tessera::testing::Variable none("TESSERA_TORCH_PYTHON", nullptr);
  ASSERT_EQ(bench({"blocks", "--heads", "1", "--blocks", "9", "--seconds",
                   "0.001", "--peers", "bench/peers", "--json"}),
            cli::kOk)
      << err_;
  const json peer = json::parse(out_)["peer"];
  EXPECT_EQ(peer["why"], "TESSERA_TORCH_PYTHON is not set");
  EXPECT_EQ(peer["us"], 0);
}

TEST(BlocksPeer, ItsLineIsRead) {
  const BlocksPeer right = parse_blocks_line(
      "a warning\n{\"call\": \"plan\", \"us\": 7.5, \"runs\": 3, \"versions\": "
      "{\"torch\": \"2\"}}\n");
  EXPECT_EQ(right.why, "");
  EXPECT_EQ(right.call, "plan");
  EXPECT_EQ(right.us, 7.5);
  EXPECT_EQ(right.runs, 3);
  EXPECT_EQ(right.versions["torch"], "2");
  EXPECT_EQ(parse_blocks_line("no line").why, "it said nothing");
  EXPECT_EQ(parse_blocks_line("{\"us\": \"7\"}").why, "its line has no time");
  EXPECT_EQ(parse_blocks_line("{\"us\": 7, \"why\": \"others\"}").why,
            "others");
}

// If PyTorch is installed: its lists equal ours, and wrong lists are detected.
TEST(BlocksPeer, ItsListsAreHeldToOurs) {
  if (std::getenv("TESSERA_TORCH_PYTHON") == nullptr) {
    GTEST_SKIP() << "TESSERA_TORCH_PYTHON is not set";
  }
  std::mt19937 random(3);
  std::vector<uint8_t> cells(3 * 70 * 40);
  for (uint8_t& cell : cells) cell = random() % 4 == 0 ? 1 : 0;
  const BlockMask mask = {cells, 3, 70, 40};
  BlockLists lists;
  ASSERT_TRUE(worklists_of_blocks(mask, lists).ok());
  const BlocksPeer same = run_blocks_peer("bench/peers", mask, lists, 0.001);
  EXPECT_EQ(same.why, "");
  EXPECT_GT(same.us, 0);
  for (Worklist* list : {&lists.forward, &lists.transposed}) {
    const Entry was = list->entries[50];
    list->entries[50] = Entry::of(was.column() ^ 1, TileClass::full);
    EXPECT_EQ(run_blocks_peer("bench/peers", mask, lists, 0.001).why,
              "its lists are others");
    list->entries[50] = was;
  }
}

}  // namespace
}  // namespace tessera::bench
