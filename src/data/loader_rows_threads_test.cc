// A loader of packed rows gives the same batches as a loader of their
// documents, from files of every format, and resumes anywhere.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/files.h"
#include "data/arrow_component.h"
#include "data/row_file.h"
#include "tests/loaded_batches.h"
#include "tests/pack_folder.h"

namespace tessera::data {
namespace {

using testing::all_of;

class LoaderRows : public testing::PackFolder {
 protected:
  void SetUp() override {
    PackFolder::SetUp();
    options_.stream.pad_id = 3;
    batches_.rows = 4;
    batches_.tile = {16, 16};
    batches_.ahead = 3;
  }
  Loader open(const std::string& path, const StreamPosition& from = {}) const {
    auto loader = Loader::open_rows(path, batches_, from);
    EXPECT_TRUE(loader) << loader.error().message;
    return std::move(*loader);
  }
  // The batches of a loader of the documents.
  std::vector<LoadedBatch> wanted() const {
    LoaderOptions options{batches_, options_.stream};
    auto loader = Loader::open(*open_documents(inputs()), options);
    EXPECT_TRUE(loader) << loader.error().message;
    return all_of(*loader);
  }
  std::string refused(const std::string& path,
                      const StreamPosition& from = {}) const {
    auto loader = Loader::open_rows(path, batches_, from);
    return loader ? "it was opened" : loader.error().message;
  }
  static void same(const LoadedBatch& got, const LoadedBatch& want) {
    EXPECT_EQ(got.rows, want.rows);
    EXPECT_EQ(got.filled, want.filled);
    EXPECT_EQ(plan_digest(got.batch.plan()), plan_digest(want.batch.plan()));
  }
  BatchOptions batches_;
};

TEST_F(LoaderRows, GiveTheBatchesOfTheirDocuments) {
  const std::vector<LoadedBatch> want = wanted();
  ASSERT_GT(want.size(), 10U);
  EXPECT_LT(want.back().filled, batches_.rows);
  for (const std::string format : {"safetensors", "parquet", "arrow"}) {
    if (format != "safetensors" && !arrow_component()) continue;
    options_.format = format;
    ASSERT_TRUE(pack(format));
    for (const int64_t workers : {1, 4}) {
      batches_.workers = workers;
      Loader loader = open(out(format));
      EXPECT_EQ(loader.shape(), want[0].rows.shape);
      const std::vector<LoadedBatch> got = all_of(loader);
      ASSERT_EQ(got.size(), want.size()) << format;
      for (size_t b = 0; b < got.size(); ++b) same(got[b], want[b]);
      EXPECT_FALSE(*loader.next()) << "the end is for good";
      EXPECT_EQ(loader.position(), got.back().after);
      EXPECT_EQ(loader.report(), StreamReport());
    }
  }
}

TEST_F(LoaderRows, OfOneFileAreThoseOfAFolder) {
  const std::vector<LoadedBatch> want = wanted();
  for (const char* name :
       {"a.parquet", "a.arrow", "a.arrows", "a.safetensors"}) {
    if (is_row_file(name) && !arrow_component()) continue;
    auto stream = RowStream::open(*open_documents(inputs()), options_.stream);
    ASSERT_TRUE(save_rows(folder_.file(name), *stream->next(1000)));
    Loader loader = open(folder_.file(name));
    const std::vector<LoadedBatch> got = all_of(loader);
    ASSERT_EQ(got.size(), want.size()) << name;
    for (size_t b = 0; b < got.size(); ++b) same(got[b], want[b]);
  }
}

// Reused memory still holds old rows.
TEST_F(LoaderRows, SpareMemoryChangesNothing) {
  const std::vector<LoadedBatch> want = wanted();
  ASSERT_TRUE(pack());
  Loader loader = open(out());
  const std::shared_ptr<SpareRows> spare = loader.spare();
  for (const LoadedBatch& expected : want) {
    auto got = loader.next();
    ASSERT_TRUE(got && *got);
    same(**got, expected);
    spare->give(std::move((*got)->rows));
  }
  EXPECT_FALSE(*loader.next());
}

TEST_F(LoaderRows, ResumedAnywhereTheyAreTheSame) {
  for (const std::string format : {"safetensors", "parquet", "arrow"}) {
    if (format != "safetensors" && !arrow_component()) continue;
    options_.format = format;
    ASSERT_TRUE(pack(format));
    Loader whole = open(out(format));
    std::vector<StreamPosition> at = {whole.position()};
    const std::vector<LoadedBatch> all = all_of(whole);
    for (const LoadedBatch& b : all) at.push_back(b.after);
    for (size_t first = 0; first < at.size(); ++first) {
      Loader again = open(out(format), at[first]);
      EXPECT_EQ(again.position(), at[first]);
      const std::vector<LoadedBatch> rest = all_of(again);
      ASSERT_EQ(rest.size(), all.size() - first) << format;
      for (size_t b = 0; b < rest.size(); ++b) {
        same(rest[b], all[first + b]);
        EXPECT_EQ(rest[b].after, all[first + b].after);
      }
    }
  }
}

TEST_F(LoaderRows, PositionsOfOthersAreRefused) {
  ASSERT_TRUE(pack());
  options_.stream.pack.seed = 5;
  options_.rows_per_file = 6;
  ASSERT_TRUE(pack("other"));
  Loader loader = open(out());
  ASSERT_TRUE(loader.next());
  const StreamPosition good = loader.position();
  EXPECT_NE(refused(out("other"), good)
                .find("must be of the same inputs (files by name, size and "
                      "order), found the digest"),
            std::string::npos);
  EXPECT_TRUE(
      refused(out(), wanted()[0].after).ends_with("' for 'packed rows'"));
  StreamPosition bad = good;
  bad.source.file = 1000;
  EXPECT_TRUE(refused(out(), bad).ends_with("found row 4 of file 1000"));
  bad = good;
  bad.source.offset = -1;
  EXPECT_TRUE(refused(out(), bad)
                  .starts_with("[data] a position must be a row of one of "));
  bad = good;
  bad.source.offset = 8;  // the file has 7 rows
  EXPECT_NE(refused(out(), bad).find("found row 8 for the 7 of '"),
            std::string::npos);
  bad = good;
  bad.counted.account.rows = 1;
  EXPECT_TRUE(refused(out(), bad)
                  .starts_with("[data] a position must be a row of one of "));
}

// A wrong kind of file is an error before any work; a bad row is an error after
// the batches before it.
TEST_F(LoaderRows, AreRefusedByTheirPlace) {
  const std::vector<LoadedBatch> want = wanted();
  ASSERT_TRUE(pack());
  const std::string third = out() + "/rows-00002.safetensors";
  Rows rows = *load_rows(third);
  rows.row(RowColumn::num_docs, 5)[0] += 1;
  ASSERT_TRUE(write_file(third, *encode_rows(rows)));
  Loader loader = open(out());
  auto next = loader.next();
  size_t batches = 0;
  for (; next && *next; next = loader.next()) same(**next, want[batches++]);
  ASSERT_FALSE(next);
  EXPECT_NE(next.error().message.find(" for row 5 of '" + third + "'"),
            std::string::npos)
      << next.error().message;
  // The third file's rows are read in one batch, from row 14 on.
  EXPECT_EQ(batches, 3U);
  EXPECT_FALSE(loader.next());

  ASSERT_TRUE(save_rows(third, *Rows::make({64, 9, 18}, 2, 4)));
  EXPECT_TRUE(refused(out()).starts_with(
      "[data] files of rows must have the same pad id, found 4 for '" + third +
      "' and 3 for '"));
  ASSERT_TRUE(save_rows(third, *Rows::make({32, 9, 18}, 2, 3)));
  EXPECT_TRUE(refused(out()).starts_with(
      "[data] files of rows must have the same tokens, found 32 for '"));
  std::filesystem::resize_file(third, 100);
  EXPECT_TRUE(refused(out()).ends_with("(in '" + third + "')"));
  EXPECT_TRUE(refused(inputs()[0])
                  .starts_with("[data] rows must be packed, as `tessera pack` "
                               "makes them, found none"));
  ASSERT_TRUE(
      save_rows(folder_.file("none.safetensors"), *Rows::make({64, 9, 18}, 0)));
  EXPECT_EQ(refused(folder_.file("none.safetensors")),
            "[data] there must be a row, found none for '" +
                folder_.file("none.safetensors") + "'");
}

TEST_F(LoaderRows, OptionsAreThoseOfEveryLoader) {
  ASSERT_TRUE(pack());
  batches_.rows = 0;
  EXPECT_EQ(refused(out()),
            "[data] a batch must have 1 to 1048576 rows, found 0 for it");
  batches_.rows = 4;
  batches_.masks = {*parse_mask("prefix & documents")};
  EXPECT_EQ(refused(out()),
            "[facts] prefix needs prefix_lengths, found none for the mask");
  batches_.masks = {*parse_mask("documents"),
                    *parse_mask("causal & documents")};
  Loader loader = open(out());
  auto next = loader.next();
  ASSERT_TRUE(next && *next);
  EXPECT_EQ((*next)->batch.request().masks.size(), 2U);
  batches_.masks = {};
  batches_.ceilings.max_steps = 1;
  Loader small = open(out());
  next = small.next();
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().kind, ErrorKind::limit);
}

}  // namespace
}  // namespace tessera::data
