// data/row_files_test.cc: rows by number, from a file and from a folder.
#include "data/row_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/files.h"
#include "data/arrow_component.h"
#include "data/row_file.h"
#include "tests/temp_folder.h"

namespace tessera::data {
namespace {

class RowFilesTest : public ::testing::Test {
 protected:
  // Rows of one token each, which counts up from `first`.
  static Rows drawn(int64_t rows, int32_t first, int64_t tokens = 8) {
    Rows out = *Rows::make(RowShape::of(tokens), rows);
    for (int64_t r = 0; r < rows; ++r) {
      out.row(RowColumn::valid_token_count, r)[0] = 1;
      out.row(RowColumn::num_docs, r)[0] = 1;
      out.row(RowColumn::doc_ids, r)[0] = 0;
      out.row(RowColumn::input_ids, r)[0] = first + static_cast<int32_t>(r);
    }
    return out;
  }
  void save(const std::string& name, int64_t rows, int32_t first,
            int64_t tokens = 8) {
    auto ok = save_rows(folder_.file(name), drawn(rows, first, tokens));
    ASSERT_TRUE(ok) << ok.error().message;
  }
  testing::TempFolder folder_;
};

TEST_F(RowFilesTest, CountsThroughAFolderAndAround) {
  save("b.safetensors", 1, 103);
  save("a.safetensors", 3, 100);
  save("c.safetensors", 2, 104);
  std::ofstream(folder_.file("notes.txt")) << "no rows";
  auto files = RowFiles::open(folder_.path().string());
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->rows(), 6);
  EXPECT_EQ(files->tokens(), 8);
  for (int64_t first = 0; first < 6; ++first) {
    auto rows = files->take(first, 8);
    ASSERT_TRUE(rows) << rows.error().message;
    EXPECT_TRUE(check_rows(*rows, "taken"));
    for (int64_t r = 0; r < 8; ++r) {
      EXPECT_EQ(rows->row(RowColumn::input_ids, r)[0], 100 + (first + r) % 6);
    }
  }
}

TEST_F(RowFilesTest, AFolderThatIsNotFinishedIsRefused) {
  save("a.safetensors", 2, 0);
  std::filesystem::create_directory(folder_.file(".unfinished"));
  std::ofstream(folder_.file(".unfinished/journal")) << "begun";
  auto files = RowFiles::open(folder_.path().string());
  ASSERT_FALSE(files);
  EXPECT_TRUE(files.error().message.starts_with(
      "[data] a folder of rows must be finished, found .unfinished in "))
      << files.error().message;
}

TEST_F(RowFilesTest, NamesTheFileThatIsWrong) {
  auto none = RowFiles::open(folder_.path().string());
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("must have a .safetensors, Parquet"),
            std::string::npos);
  save("a.safetensors", 2, 0);
  auto one = RowFiles::open(folder_.file("a.safetensors"));
  ASSERT_TRUE(one) << one.error().message;
  save("b.safetensors", 1, 0, 16);
  auto mixed = RowFiles::open(folder_.path().string());
  ASSERT_FALSE(mixed);
  EXPECT_NE(mixed.error().message.find("found 16 for"), std::string::npos)
      << mixed.error().message;
  Rows others = drawn(1, 0);
  others.pad_id = 5;
  for (const RowColumn padded : {RowColumn::input_ids, RowColumn::target_ids}) {
    for (int64_t t = 1; t < 8; ++t) others.row(padded, 0)[t] = 5;
  }
  ASSERT_TRUE(save_rows(folder_.file("b.safetensors"), others));
  mixed = RowFiles::open(folder_.path().string());
  ASSERT_FALSE(mixed);
  EXPECT_NE(mixed.error().message.find("same pad id, found 5 for"),
            std::string::npos)
      << mixed.error().message;
  save("b.safetensors", 1, 0);
  auto files = RowFiles::open(folder_.path().string());
  ASSERT_TRUE(files) << files.error().message;
  save("a.safetensors", 1, 0);
  auto changed = files->take(0, 1);
  ASSERT_FALSE(changed);
  EXPECT_NE(changed.error().message.find("must stay as it was"),
            std::string::npos)
      << changed.error().message;
}

TEST_F(RowFilesTest, DocumentsAreNoRows) {
  for (const char* text : {"", "cut", "{\"input_ids\": [1, 2, 3]}\n"}) {
    const std::string path = folder_.file("documents.jsonl");
    std::ofstream(path) << text;
    auto files = RowFiles::open(path);
    ASSERT_FALSE(files);
    EXPECT_EQ(files.error().message,
              "[data] rows must be packed, as `tessera pack` makes them, found "
              "none in '" +
                  path + "'");
  }
  EXPECT_FALSE(RowFiles::open(folder_.file("none")));
}

TEST_F(RowFilesTest, AFolderIsNoFileOfRows) {
  if (auto found = arrow_component(); !found) {
    GTEST_SKIP() << found.error().message;
  }
  save("a.safetensors", 2, 0);
  const std::string path = folder_.file("b.parquet");
  std::filesystem::create_directory(path);
  const auto files = RowFiles::open(folder_.path().string());
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().message,
            "[data] rows must be a file, found none for '" + path + "'");
}

// An error in any file's rows names the file, and no file is left.
TEST_F(RowFilesTest, RowsThatDoNotHoldAreNotSaved) {
  Rows bad = drawn(4, 100);
  bad.row(RowColumn::doc_ids, 1)[0] = 5;
  for (const char* name : {"a.safetensors", "a.parquet", "a.arrow"}) {
    if (is_row_file(name) && !arrow_component()) continue;
    const std::string path = folder_.file(name);
    const auto saved = save_rows(path, bad);
    ASSERT_FALSE(saved) << name;
    const std::string& said = saved.error().message;
    EXPECT_TRUE(said.ends_with(" of row 1 of '" + path + "'")) << said;
    EXPECT_FALSE(std::filesystem::exists(path)) << name;
  }
}

// One batch of 3 rows of an Arrow file is in memory, whichever row is asked
// for. Rows continue across files of both kinds.
TEST_F(RowFilesTest, HoldsABatchOfAnArrowFile) {
  if (auto found = arrow_component(); !found) {
    GTEST_SKIP() << found.error().message;
  }
  for (const std::string ending : {".parquet", ".arrow", ".arrows"}) {
    const std::string folder = folder_.file("rows" + ending);
    std::filesystem::create_directory(folder);
    save("a.safetensors", 1, 100);
    std::filesystem::rename(folder_.file("a.safetensors"),
                            folder + "/a.safetensors");
    int64_t at = 0;
    const auto next = [&]() -> Result<Rows> {
      const int64_t n = std::min<int64_t>(3, 10 - at);
      Rows rows = drawn(n, 101 + static_cast<int32_t>(at));
      at += n;
      return rows;
    };
    auto saved = save_row_file(folder + "/b" + ending, next);
    ASSERT_TRUE(saved) << saved.error().message;
    auto files = RowFiles::open(folder);
    ASSERT_TRUE(files) << files.error().message;
    EXPECT_EQ(files->rows(), 11);
    for (const int64_t first : {0, 1, 2, 5, 4, 10, 9, 3, 0, 7, 6}) {
      auto rows = files->take(first, 6);
      ASSERT_TRUE(rows) << rows.error().message;
      EXPECT_TRUE(check_rows(*rows, "taken"));
      EXPECT_LE(files->held(), 3);
      for (int64_t r = 0; r < 6; ++r) {
        EXPECT_EQ(rows->row(RowColumn::input_ids, r)[0], 100 + (first + r) % 11)
            << ending;
      }
    }
    at = 0;
    const auto fewer = [&]() -> Result<Rows> {
      return drawn(at++ == 0 ? 2 : 0, 101);
    };
    ASSERT_TRUE(save_row_file(folder + "/b" + ending, fewer));
    auto changed = files->take(8, 1);
    EXPECT_FALSE(changed) << ending;
  }
}

// The name decides, whatever the file holds.
TEST_F(RowFilesTest, ARowFileIsThereInOneFormat) {
  save("rows-00001.safetensors", 1, 100);
  save("rows-00001.x.safetensors", 1, 101);
  ASSERT_TRUE(RowFiles::open(folder_.path().string()));
  std::ofstream(folder_.file("rows-00001.parquet")) << "a copy";
  const auto files = RowFiles::open(folder_.path().string());
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().message,
            "[data] a folder of rows must have each file in one format, found "
            "'" +
                folder_.file("rows-00001.parquet") + "' and '" +
                folder_.file("rows-00001.safetensors") + "'");
}

// Some long rows of a .safetensors file are in memory, whichever row is asked
// for. A file that changed is an error.
TEST_F(RowFilesTest, HoldsSomeRowsOfASafetensorsFile) {
  constexpr int64_t kTokens = 1 << 15;
  const std::string path = folder_.file("a.safetensors");
  save("a.safetensors", 7, 100, kTokens);
  save("b.safetensors", 2, 107, kTokens);
  auto files = RowFiles::open(folder_.path().string());
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->rows(), 9);
  const Rows whole = *load_rows(path);
  for (const int64_t first : {0, 1, 2, 5, 4, 6, 3, 8, 0, 7}) {
    auto rows = files->take(first, 3);
    ASSERT_TRUE(rows) << rows.error().message;
    EXPECT_LE(files->held(), 3);
    for (int64_t r = 0; r < 3; ++r) {
      const int64_t at = (first + r) % 9;
      EXPECT_EQ(rows->row(RowColumn::input_ids, r)[0], 100 + at);
      for (size_t c = 0; at < 7 && c < kRowColumns; ++c) {
        const auto column = static_cast<RowColumn>(c);
        EXPECT_TRUE(
            std::ranges::equal(rows->row(column, r), whole.row(column, at)));
      }
    }
  }
  // Row 5 of the new file is refused by its number.
  Rows bad = drawn(7, 100, kTokens);
  bad.row(RowColumn::num_docs, 5)[0] = 3;
  ASSERT_TRUE(write_file(path, *encode_rows(bad)));
  const auto refused = RowFiles::open(folder_.path().string());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("found 3 for row 5 of"),
            std::string::npos)
      << refused.error().message;
  const auto folder = open_safetensors_rows(folder_.path().string(), 0);
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().message.find("must be a regular file"),
            std::string::npos);
  // A file cut at any place is refused with an error of one line.
  const std::string bytes = *encode_rows(drawn(3, 100));
  for (size_t size = 0; size < bytes.size(); size += 1 + size / 9) {
    ASSERT_TRUE(write_file(path, std::string_view(bytes).substr(0, size)));
    const auto cut = open_safetensors_rows(path, 0);
    ASSERT_FALSE(cut) << size;
    EXPECT_EQ(cut.error().message.find('\n'), std::string::npos);
    EXPECT_EQ(cut.error().message, load_rows(path).error().message) << size;
  }
  ASSERT_TRUE(write_file(path, bytes));
  auto batches = open_safetensors_rows(path, 0);
  ASSERT_TRUE(batches) << batches.error().message;
  std::filesystem::resize_file(path, bytes.size() / 2);
  const auto shorter = (*batches)->next();
  ASSERT_FALSE(shorter);
  EXPECT_NE(shorter.error().message.find("a file must stay as it was"),
            std::string::npos);
}

// A bad row is named by its number in the file, not in its batch.
TEST_F(RowFilesTest, NamesARowOfALaterBatch) {
  Rows rows = drawn(2, 100);
  rows.row(RowColumn::num_docs, 1)[0] = 7;
  const auto bad = check_rows_from(4, rows, "rows.parquet");
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("found 7 for row 5 of"), std::string::npos)
      << bad.error().message;
}

TEST_F(RowFilesTest, FilesHaveRoomForTheSameChunks) {
  save("a.safetensors", 1, 0);
  Rows wide = *Rows::make({8, 3, 2}, 1);
  ASSERT_TRUE(save_rows(folder_.file("b.safetensors"), wide));
  auto files = RowFiles::open(folder_.path().string());
  ASSERT_FALSE(files);
  EXPECT_NE(files.error().message.find("chunks and edges, found 3 and 2 for"),
            std::string::npos)
      << files.error().message;
}

}  // namespace
}  // namespace tessera::data
