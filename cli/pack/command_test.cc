// cli/pack/command_test.cc: `tessera pack`.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/files.h"
#include "tessera/data.h"
#include "tests/program.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

class PackProgram : public tessera::testing::Program {
 protected:
  void SetUp() override {
    std::string text;
    for (int d = 0; d < 40; ++d) {
      json ids = json::array();
      for (int i = 0; i < d * 3; ++i) ids.push_back(i + 1);
      text += json{{"input_ids", ids}, {"source", "a"}}.dump() + "\n";
    }
    ASSERT_TRUE(write_file(file("a.jsonl"), text));
  }
  // The error of `tessera pack`; "" if it succeeds.
  std::string err_of(testing::Arguments more) {
    more.insert(more.begin(), "pack");
    program(more);
    EXPECT_EQ(code_ == 0, err_.empty());
    return err_;
  }
};

TEST_F(PackProgram, WritesRowsAndAccountsForEveryToken) {
  for (const char* strategy : {"inorder", "firstfit", "bestfit", "cost"}) {
    const std::string out = file(strategy);
    program({"pack", file("a.jsonl"), "--tokens", "64", "--strategy", strategy,
             "--rows-per-file", "7", "-o", out, "--json"});
    ASSERT_EQ(code_, 0) << err_;
    const json j = json::parse(out_);
    EXPECT_EQ(j["documents"], 40);
    EXPECT_EQ(j["documents_empty"], 1);
    EXPECT_EQ(j["tokens_in"], 3 * 39 * 40 / 2);
    EXPECT_EQ(j["tokens_out"], j["tokens_in"]);
    EXPECT_EQ(j["tokens_dropped"], 0);
    EXPECT_EQ(j["ignored_columns"], json({"source"}));
    EXPECT_GT(j["fill"], 0.95);
    int64_t rows = 0, tokens = 0;
    for (int64_t at = 0; at < j["files"]; ++at) {
      const auto read =
          load_rows(out + "/rows-0000" + std::to_string(at) + ".safetensors");
      ASSERT_TRUE(read) << read.error().message;
      rows += read->rows;
      for (const int32_t n : read->column(RowColumn::valid_token_count)) {
        tokens += n;
      }
    }
    EXPECT_EQ(j["rows"], rows);
    EXPECT_EQ(j["tokens_out"], tokens);
    // It does not write into a folder that is not empty.
    program({"pack", file("a.jsonl"), "-o", out});
    EXPECT_EQ(code_, 2);
  }
}

TEST_F(PackProgram, DropsByTheRuleThatIsNamed) {
  program(
      {"pack", file("a.jsonl"), "--tokens", "64", "--long", "drop", "--json"});
  ASSERT_EQ(code_, 0) << err_;
  const json j = json::parse(out_);
  EXPECT_EQ(j["dropped_by"], "drop");
  EXPECT_EQ(j["documents_dropped"], 40 - 22);
  EXPECT_EQ(j["tokens_in"], j["tokens_out"].get<int64_t>() +
                                j["tokens_dropped"].get<int64_t>());
}

TEST_F(PackProgram, DrawsWhatTheRowsAreLike) {
  program({"pack", file("a.jsonl"), "--tokens", "64", "--stats",
           file("rows.svg"), "--json"});
  ASSERT_EQ(code_, 0) << err_;
  const json j = json::parse(out_);
  const auto svg = read_file(file("rows.svg"), 1 << 20);
  ASSERT_TRUE(svg) << svg.error().message;
  EXPECT_NE(svg->find(std::to_string(j["rows"].get<int64_t>()) +
                      " rows of 64 tokens"),
            std::string::npos);
  // A picture that cannot be written is refused before any row is made.
  program({"pack", file("a.jsonl"), "-o", file("unmade"), "--stats",
           file("none/rows.svg")});
  EXPECT_NE(code_, 0);
  EXPECT_FALSE(std::filesystem::exists(file("unmade")));
}

// A refused run writes no picture.
TEST_F(PackProgram, APictureIsWrittenOverByRowsAlone) {
  const std::string own = "{\"input_ids\": [1]}\n";
  ASSERT_TRUE(write_file(file("own.svg"), own));
  EXPECT_EQ(err_of({file("own.svg"), "--stats", file("./own.svg")}),
            "tessera: [cli] each file must have a name of its own, found '" +
                file("./own.svg") + "' for '" + file("own.svg") + "'\n");
  EXPECT_EQ(*read_file(file("own.svg"), 100), own);
  std::filesystem::create_directory(file("full"));
  ASSERT_TRUE(write_file(file("full/notes"), "mine"));
  err_of({file("a.jsonl"), "-o", file("full"), "--stats", file("own.svg")});
  EXPECT_EQ(*read_file(file("own.svg"), 100), own);
  for (const char* out : {"new", "new/", "./new", "empty", "empty/"}) {
    std::filesystem::create_directory(file("empty"));
    const std::string in = file(out[0] == 'e' ? "empty/a.svg" : "new/a.svg");
    EXPECT_EQ(err_of({file("a.jsonl"), "-o", file(out), "--stats", in}),
              "tessera: [cli] --stats must lie outside of --out, found '" + in +
                  "'\n");
    EXPECT_FALSE(std::filesystem::exists(in));
  }
}

// No input is overwritten, and a failed run leaves no rows.
TEST_F(PackProgram, LosesNothing) {
  const std::string own = "{\"input_ids\": [1]}\n";
  ASSERT_TRUE(write_file(file("own.jsonl"), own));
  ASSERT_TRUE(write_file(file("bad.jsonl"), "{\"input_ids\": [1, 2]}\n{\n"));
  const std::string inputs =
      err_of({file("own.jsonl"), "-o", file("./own.jsonl")});
  EXPECT_TRUE(
      inputs.starts_with("tessera: [cli] --out must be no input, found "))
      << inputs;
  EXPECT_EQ(*read_file(file("own.jsonl"), 100), own);
  for (const char* name : {"rows.safetensors", "rows.jsonl"}) {
    const std::string other = err_of({file("a.jsonl"), "-o", file(name)});
    EXPECT_TRUE(
        other.starts_with("tessera: [cli] --out must be a folder, or a file of "
                          "Parquet or Arrow IPC, found "))
        << other;
    EXPECT_FALSE(std::filesystem::exists(file(name)));
  }
  // A missing file is found before any row is written.
  const std::string missing =
      err_of({file("a.jsonl"), file("none.jsonl"), "-o", file("none")});
  EXPECT_TRUE(
      missing.starts_with("tessera: [data] a file must be readable, found "))
      << missing;
  EXPECT_FALSE(std::filesystem::exists(file("none")));
  const std::string mask =
      err_of({file("a.jsonl"), "--mask", "prefix", "-o", file("none")});
  EXPECT_NE(mask, "");
  EXPECT_FALSE(std::filesystem::exists(file("none")));
  // A run that fails in the last line leaves no file; the folder can be reused.
  EXPECT_NE(
      err_of({file("a.jsonl"), file("bad.jsonl"), "--tokens", "64",
              "--window-rows", "1", "--rows-per-file", "1", "-o", file("out")}),
      "");
  EXPECT_TRUE(std::filesystem::is_empty(file("out")));
  EXPECT_EQ(program({"pack", file("a.jsonl"), "-o", file("out")}), 0) << err_;
}

TEST_F(PackProgram, EveryChunkIsAccountedFor) {
  ASSERT_TRUE(write_file(
      file("chunks.jsonl"),
      "{\"input_ids\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], "
      "\"chunk_starts\": [0, 3, 6, 9], \"chunk_ends\": [3, 6, 9, 12], "
      "\"call_edges\": [[0, 1], [1, 2], [2, 3]]}\n"));
  for (const auto& [rule, out, dropped, edges_out, across] :
       {std::tuple("split", 4, 0, 2, 1), std::tuple("keep_head", 3, 1, 2, 0),
        std::tuple("keep_tail", 2, 2, 1, 0), std::tuple("drop", 0, 4, 0, 0)}) {
    program({"pack", file("chunks.jsonl"), "--tokens", "8", "--long", rule,
             "--json"});
    const json j = json::parse(out_);
    EXPECT_EQ(j["chunks"]["in"], 4);
    EXPECT_EQ(j["chunks"]["out"], out) << rule;
    EXPECT_EQ(j["chunks"]["dropped"], dropped) << rule;
    EXPECT_EQ(j["chunks"]["no_room"], 0);
    EXPECT_EQ(j["chunks"]["room"], "drop");
    const json& e = j["edges"];
    EXPECT_EQ(e["in"], 3);
    EXPECT_EQ(e["no_room"], 0);
    EXPECT_EQ(e["out"], edges_out) << rule;
    EXPECT_EQ(e["across_rows"], across) << rule;
    EXPECT_EQ(e["dropped"], 3 - edges_out - across) << rule;
  }
}

// The default number of rows in a file is lower for long rows, so every length
// has a valid default.
TEST_F(PackProgram, RowsMayBeLong) {
  EXPECT_EQ(program({"pack", file("a.jsonl"), "--tokens", "1048576", "-o",
                     file("long")}),
            0)
      << err_;
  const auto rows = load_rows(file("long") + "/rows-00000.safetensors");
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(rows->rows, 1);
}

// --restart and --format are for a folder; one file is refused with them.
TEST_F(PackProgram, OneFileIsNeitherRestartedNorOfAnotherFormat) {
  const std::string out = file("rows.parquet");
  for (const testing::Arguments& flag :
       {testing::Arguments{"--restart"},
        testing::Arguments{"--format", "parquet"}}) {
    testing::Arguments asked = {file("a.jsonl"), "-o", out};
    asked.insert(asked.end(), flag.begin(), flag.end());
    EXPECT_EQ(err_of(asked), "tessera: [cli] " + flag[0] +
                                 " must come with a folder as --out, found '" +
                                 out + "' for it\n");
    EXPECT_FALSE(std::filesystem::exists(out));
  }
}

TEST_F(PackProgram, NoFileHasNoRows) {
  EXPECT_EQ(err_of({file("a.jsonl"), "--rows-per-file", "8"}),
            "tessera: [cli] --rows-per-file must come with --out, found "
            "none\n");
}

// The balance is unknown if no step is full.
TEST_F(PackProgram, SaysWhatIsNotKnown) {
  program({"pack", file("a.jsonl"), "--tokens", "8192", "--json"});
  const json j = json::parse(out_);
  EXPECT_EQ(j["full_steps"], 0);
  EXPECT_TRUE(j["cost_max_over_mean"].is_null());
  EXPECT_TRUE(j["length_spread"].is_null());
  EXPECT_FALSE(j["fill"].is_null());
  ASSERT_TRUE(write_file(file("empty.jsonl"), ""));
  program({"pack", file("empty.jsonl"), "--json"});
  EXPECT_TRUE(json::parse(out_)["fill"].is_null());
  program(
      {"pack", file("a.jsonl"), "--tokens", "64", "--tile", "16x16", "--json"});
  EXPECT_GT(json::parse(out_)["full_steps"], 0);
}

// The report gives the count of lost chunks with the rule that dropped them.
TEST_F(PackProgram, NamesWhatBecomesOfChunksWithoutRoom) {
  ASSERT_TRUE(write_file(
      file("chunks.jsonl"),
      "{\"input_ids\": [1, 2, 3], \"chunk_starts\": [0, 1, 2], "
      "\"chunk_ends\": [1, 2, 3], \"type_edges\": [[0, 1], [0, 2]]}\n"));
  program({"pack", file("chunks.jsonl"), "--tokens", "8", "--max-chunks", "2"});
  EXPECT_NE(out_.find("2 out, 0 cut, 1 without room (drop), 0 dropped\n"),
            std::string::npos)
      << out_;
  EXPECT_NE(out_.find("1 out, 0 across rows, 1 without room (drop), "),
            std::string::npos)
      << out_;
  EXPECT_NE(err_of({file("chunks.jsonl"), "--tokens", "8", "--max-chunks", "2",
                    "--strict-chunks"})
                .find("[data] a row must have at most 2 of chunk_starts, found "
                      "more for line 1 of '"),
            std::string::npos)
      << err_;
}

TEST_F(PackProgram, RefusesBadInputInOneLine) {
  const std::vector<tessera::testing::Arguments> cases = {
      {"pack"},
      {"pack", file("none.jsonl")},
      {"pack", file("a.jsonl"), "--tokens", "0"},
      {"pack", file("a.jsonl"), "--strategy", "magic"},
      {"pack", file("a.jsonl"), "--long", "magic"},
      {"pack", file("a.jsonl"), "--mixing", "2"},
      {"pack", file("a.jsonl"), "--mask", "causal &"},
      {"pack", file("a.jsonl"), "--mask", "prefix", "--strategy", "cost"},
      {"pack", file("a.jsonl"), "--rows-per-file", "0"},
      {"pack", file("a.jsonl"), "--stats", file("rows.png")},
      {"pack", file("a.jsonl"), "-o", file("none/rows.parquet")},
      {"pack", file("a.jsonl"), "--format", "parquet"},
      {"pack", file("a.jsonl"), "--format", "csv", "-o", file("none")},
      {"pack", file("none.parquet")},
  };
  for (const auto& arguments : cases) {
    program(arguments);
    EXPECT_EQ(code_, 2) << ::testing::PrintToString(arguments);
    EXPECT_EQ(out_, "");
  }
}

}  // namespace
}  // namespace tessera::cli
