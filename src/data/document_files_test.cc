// data/document_files_test.cc: files of several kinds as one source.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "base/files.h"
#include "data/arrow_component.h"
#include "tessera/documents.h"
#include "tests/little_memory.h"
#include "tests/temp_folder.h"

// Skips with the reason that a user gets.
#define TESSERA_NEEDS_ARROW()                                  \
  if (auto found = ::tessera::data::arrow_component(); !found) \
  GTEST_SKIP() << found.error().message

namespace tessera {
namespace {

constexpr const char* kSample = "examples/sources.parquet";

// Reads all documents; an error fails the test.
Documents read_all(DocumentSource& source) {
  Documents out;
  while (true) {
    const auto more = source.read(out);
    EXPECT_TRUE(more) << more.error().message;
    if (!more || !*more) return out;
  }
}

class DocumentFiles : public ::testing::Test {
 protected:
  std::string lines(const std::string& name, int first, int count) {
    std::string text;
    for (int d = first; d < first + count; ++d) {
      text += "{\"input_ids\": [" + std::to_string(d) + "], \"other\": 1}\n";
    }
    EXPECT_TRUE(write_file(folder_.file(name), text));
    return folder_.file(name);
  }
  testing::TempFolder folder_;
};

TEST_F(DocumentFiles, FollowOneAnotherAndGoOnFromAnyPosition) {
  const std::vector<std::string> files = {
      lines("a.jsonl", 0, 3), lines("b", 3, 0), lines("c.txt", 3, 4)};
  auto source = open_documents(files);
  ASSERT_TRUE(source) << source.error().message;
  Documents into;
  for (int d = 0; d <= 7; ++d) {
    const SourcePosition at = (*source)->position();
    auto again = open_documents(files);
    ASSERT_TRUE((*again)->seek(at));
    const Documents rest = read_all(**again);
    ASSERT_EQ(rest.size(), 7 - d);
    for (int i = 0; i < 7 - d; ++i) {
      EXPECT_EQ(rest.input_ids[static_cast<size_t>(i)], d + i);
    }
    const auto more = (*source)->read(into);
    ASSERT_TRUE(more) << more.error().message;
    EXPECT_EQ(*more, d < 7);
  }
  EXPECT_EQ((*source)->ignored(), std::set<std::string>{"other"});
  EXPECT_TRUE((*source)->seek({3, 0, 0}));
  EXPECT_FALSE((*source)->seek({3, 1, 0}));
  EXPECT_FALSE((*source)->seek({4, 0, 0}));
  EXPECT_FALSE((*source)->seek({-1, 0, 0}));
  EXPECT_FALSE(open_documents({}));
}

// Output of `tessera pack` in any format is refused before any file is read.
TEST_F(DocumentFiles, PackedRowsAreNoDocuments) {
  const Rows rows = *Rows::make(RowShape::of(8), 2);
  const auto said_of = [&](const std::string& path) {
    const auto source = open_documents({lines("a.jsonl", 0, 3), path});
    return source ? "all was taken" : source.error().message;
  };
  const std::string plain = folder_.file("rows.safetensors");
  ASSERT_TRUE(save_rows(plain, rows));
  const std::string refused =
      "[data] documents must not be packed rows already, found ";
  EXPECT_EQ(said_of(plain),
            refused + "a .safetensors file for '" + plain + "'");
  const std::string inside = folder_.file("rows/rows-00000.safetensors");
  std::filesystem::create_directory(folder_.file("rows"));
  EXPECT_EQ(said_of(folder_.file("rows")),
            "[data] documents must be a file, found none for '" +
                folder_.file("rows") + "'");
  ASSERT_TRUE(save_rows(inside, rows));
  EXPECT_EQ(said_of(folder_.file("rows")),
            refused + "a .safetensors file for '" + inside + "'");
  TESSERA_NEEDS_ARROW();
  const std::string columns =
      "the columns of such (input_ids, target_ids, loss_mask, doc_ids, "
      "valid_token_count, num_docs) for '";
  for (const char* name : {"b.parquet", "b.arrow", "b.arrows"}) {
    const std::string path = folder_.file(name);
    ASSERT_TRUE(save_rows(path, rows));
    EXPECT_EQ(said_of(path), refused + columns + path + "'");
  }
}

TEST_F(DocumentFiles, LinesOfPackedRowsAreNoDocuments) {
  const std::string path = folder_.file("rows.jsonl");
  const std::string row =
      "{\"input_ids\": [1], \"target_ids\": [0], \"loss_mask\": [0], "
      "\"doc_ids\": [0], \"valid_token_count\": 1";
  ASSERT_TRUE(write_file(path, row + "}\n" + row + ", \"num_docs\": 1}\n"));
  auto source = open_documents({path});
  ASSERT_TRUE(source) << source.error().message;
  Documents into;
  EXPECT_TRUE((*source)->read(into)) << "documents may have such columns";
  const auto more = (*source)->read(into);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().message,
            "[data] documents must not be packed rows already, found the "
            "columns of such (input_ids, target_ids, loss_mask, doc_ids, "
            "valid_token_count, num_docs) for line 2 of '" +
                path + "'");
}

// A file that changes would give lines of two versions.
TEST_F(DocumentFiles, AFileThatChangesWhileItIsReadIsRefused) {
  namespace fs = std::filesystem;
  using Change = std::function<void(const std::string& path)>;
  const Change changes[] = {
      [](const std::string& path) {
        std::ofstream(path, std::ios::app) << "{\"input_ids\": [7]}\n";
      },
      [](const std::string& path) { fs::resize_file(path, 0); },
      [](const std::string& path) {
        fs::last_write_time(path,
                            fs::last_write_time(path) + std::chrono::hours(1));
      }};
  for (const Change& change : changes) {
    const std::string path = lines("a.jsonl", 0, 3);
    auto source = open_documents({path, lines("b.jsonl", 3, 1)});
    ASSERT_TRUE(source) << source.error().message;
    Documents into;
    ASSERT_TRUE((*source)->read(into));
    change(path);
    auto more = (*source)->read(into);
    while (more && *more) more = (*source)->read(into);
    for (int again = 0; again < 2; ++again) {
      ASSERT_FALSE(more);
      EXPECT_EQ(more.error().kind, ErrorKind::invalid);
      EXPECT_EQ(more.error().message,
                "[data] an input must not change while it is read, found "
                "another size or time of change for '" +
                    path + "'");
      more = (*source)->read(into);
    }
  }
}

#ifndef TESSERA_SANITIZED
TEST_F(DocumentFiles, NoMemoryForALongLineIsNoEndOfTheProcess) {
  constexpr int kTokens = 300'000;
  std::string text = "{\"input_ids\": [1";
  text.reserve(text.size() + 2 * kTokens);
  for (int t = 1; t < kTokens; ++t) text += ",1";
  ASSERT_TRUE(write_file(folder_.file("long.jsonl"), text + "]}\n"));
  const auto read = [&] {
    auto source = open_documents({folder_.file("long.jsonl")});
    Documents into;
    if (source) (void)(*source)->read(into);
  };
  for (uint64_t room = 0; room <= 24; ++room) {
    EXPECT_TRUE(testing::ends_by_itself(room << 20, read)) << room << " MiB";
  }
}
#endif

TEST_F(DocumentFiles, ParquetOfTheSampleIsReadFromAnyRow) {
  TESSERA_NEEDS_ARROW();
  auto source = open_documents({kSample, lines("a.jsonl", 0, 2), kSample});
  ASSERT_TRUE(source) << source.error().message;
  const Documents twice = read_all(**source);
  auto once = open_documents({kSample});
  const Documents sample = read_all(**once);
  ASSERT_GT(sample.size(), 2);
  EXPECT_EQ(twice.size(), 2 * sample.size() + 2);
  EXPECT_GT(sample.chunk_starts.size(), 5U);
  EXPECT_GT(sample.edges[0].size(), 2U);
  for (int64_t row = 0; row <= sample.size(); ++row) {
    ASSERT_TRUE((*source)->seek({2, row, 0}));
    const Documents rest = read_all(**source);
    const auto from =
        sample.input_ids.begin() + sample.token_start[static_cast<size_t>(row)];
    EXPECT_EQ(rest.input_ids,
              std::vector<int32_t>(from, sample.input_ids.end()));
  }
  ASSERT_FALSE((*source)->seek({2, -1, 0}));
}

TEST_F(DocumentFiles, AreTheSameForAnyNumberOfWorkers) {
  TESSERA_NEEDS_ARROW();
  auto one = open_documents({kSample});
  const Documents sample = read_all(**one);
  for (const int64_t workers : {-1, 0, 2, 3, 64, 1000}) {
    auto source = open_documents({kSample});
    (*source)->set_workers(workers);
    const Documents read = read_all(**source);
    EXPECT_EQ(read.token_start, sample.token_start);
    EXPECT_EQ(read.input_ids, sample.input_ids);
    EXPECT_EQ(read.structure, sample.structure);
    EXPECT_EQ(read.chunk_start, sample.chunk_start);
    EXPECT_EQ(read.chunk_starts, sample.chunk_starts);
    EXPECT_EQ(read.chunk_ends, sample.chunk_ends);
    EXPECT_EQ(read.chunk_kinds, sample.chunk_kinds);
    EXPECT_EQ(read.edge_start, sample.edge_start);
    EXPECT_EQ(read.edges, sample.edges);
  }
}

TEST_F(DocumentFiles, BrokenParquetIsRefusedByItsPlace) {
  TESSERA_NEEDS_ARROW();
  const auto whole = read_file(kSample, 1 << 20);
  ASSERT_TRUE(whole) << whole.error().message;
  const std::string path = folder_.file("broken.parquet");
  const auto said_by = [&](int64_t workers) -> std::string {
    auto source = open_documents({path});
    (*source)->set_workers(workers);
    Documents into;
    while (true) {
      const auto more = (*source)->read(into);
      if (!more) return more.error().message;
      if (!*more) return "all was read";
    }
  };
  const auto said = [&](const std::string& bytes) {
    EXPECT_TRUE(write_file(path, bytes));
    const std::string first = said_by(1);
    EXPECT_EQ(said_by(3), first);
    return first;
  };
  EXPECT_EQ(said(*whole), "all was read");
  EXPECT_NE(said("").find("neither Parquet nor Arrow"), std::string::npos);
  for (const size_t length : {4U, 11U, 1000U, 20000U}) {
    const std::string error = said(whole->substr(0, length));
    EXPECT_NE(error.find("a file must give its columns, found '"),
              std::string::npos);
    EXPECT_NE(error.find("broken.parquet'"), std::string::npos);
  }
  std::string bytes = *whole;
  bytes.replace(40, 40, 40, '\xff');  // in the first column's first page
  EXPECT_NE(said(bytes).find("column input_ids of row group 0: "),
            std::string::npos);
  // A fault at any position.
  for (size_t at = 50; at < whole->size(); at += 397) {
    bytes = *whole;
    bytes.replace(at, 1, 1, static_cast<char>(bytes[at] ^ 0x5a));
    said(bytes);
  }
}

}  // namespace
}  // namespace tessera
