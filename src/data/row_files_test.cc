// data/row_files_test.cc: rows by number, from a file and from a folder.
#include "data/row_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/temp_folder.h"

namespace tessera::data {
namespace {

class RowFilesTest : public ::testing::Test {
 protected:
  void save(const std::string& name, int64_t rows, int32_t first,
            int64_t tokens = 8) {
    Rows out = *Rows::make(RowShape::of(tokens), rows);
    for (int64_t r = 0; r < rows; ++r) {
      out.row(RowColumn::valid_token_count, r)[0] = 1;
      out.row(RowColumn::num_docs, r)[0] = 1;
      out.row(RowColumn::doc_ids, r)[0] = 0;
      out.row(RowColumn::input_ids, r)[0] = first + static_cast<int32_t>(r);
    }
    auto ok = save_rows(folder_.file(name), out);
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

}  // namespace
}  // namespace tessera::data
