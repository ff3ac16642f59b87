// data/import_rows_test.cc: rows to Arrow and back, in memory and in files.
#include "data/import_rows.h"

#include <gtest/gtest.h>

#include <random>

#include "base/files.h"
#include "data/arrow_component.h"
#include "data/export_rows.h"
#include "data/row_file.h"
#include "tests/temp_folder.h"

namespace tessera::data {
namespace {

// Documents of random lengths with random columns, one or two per row.
Rows drawn(int64_t rows, uint64_t seed) {
  std::mt19937_64 random(seed);
  auto made = Rows::make({1 + static_cast<int64_t>(random() % 9), 3, 2}, rows,
                         static_cast<int32_t>(random() % 5));
  EXPECT_TRUE(made);
  const auto tokens = static_cast<size_t>(made->shape.tokens);
  for (int64_t r = 0; r < rows; ++r) {
    const size_t valid = random() % (tokens + 1);
    const size_t cut = valid == 0 ? 0 : random() % valid;
    made->row(RowColumn::valid_token_count, r)[0] = static_cast<int32_t>(valid);
    made->row(RowColumn::num_docs, r)[0] = valid == 0 ? 0 : cut == 0 ? 1 : 2;
    for (size_t i = 0; i < valid; ++i) {
      const bool second = cut > 0 && i >= cut;
      made->row(RowColumn::doc_ids, r)[i] = second ? 1 : 0;
      made->row(RowColumn::input_ids, r)[i] =
          static_cast<int32_t>(random() % 1000);
      made->row(RowColumn::ast_depth, r)[i] =
          static_cast<int32_t>(random() % 9) - 4;
      made->row(RowColumn::positions, r)[i] =
          static_cast<int32_t>(second ? i - cut : i);
    }
    if (valid > 0) {
      made->row(RowColumn::num_chunks, r)[0] = 1;
      made->row(RowColumn::chunk_starts, r)[0] = 0;
      made->row(RowColumn::chunk_ends, r)[0] = 1;
      made->row(RowColumn::num_call_edges, r)[0] = 1;
      made->row(RowColumn::call_edges, r)[0] = 0;
      made->row(RowColumn::call_edges, r)[1] = 0;
    }
  }
  EXPECT_TRUE(check_rows(*made, "drawn"));
  return std::move(*made);
}

// Rows [first, first + count).
Rows part(const Rows& rows, int64_t first, int64_t count) {
  Rows out = *Rows::make(rows.shape, count, rows.pad_id);
  for (size_t c = 0; c < kRowColumns; ++c) {
    const auto size = rows.shape.size(static_cast<RowColumn>(c));
    const auto begin = rows.columns[c].begin() + first * size;
    out.columns[c].assign(begin, begin + count * size);
  }
  return out;
}

// Returns the rows some at a time.
std::function<Result<Rows>()> in_parts(const Rows& rows) {
  return [&rows, at = int64_t{0}]() mutable -> Result<Rows> {
    const int64_t first = at;
    at = std::min(rows.rows, at + 3);
    return part(rows, first, at - first);
  };
}

TEST(ImportRows, AreThoseThatWereExported) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Rows want = drawn(static_cast<int64_t>(seed % 11), seed);
    auto next = in_parts(want);
    std::optional<Error> error;
    ArrowArrayStream stream = {};
    Rows first = *next();
    export_rows(std::move(first), next, "rows", error, &stream);
    const auto got = import_rows(stream, "rows");
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(*got, want);
  }
}

// A stream of rows with changes made to its schema and batches.
struct Changed {
  std::optional<Error> error;
  ArrowArrayStream from = {};
  std::function<void(ArrowSchema&)> schema;
  std::function<void(ArrowArray&)> batch;
};

Changed& to(ArrowArrayStream* self) {
  return *static_cast<Changed*>(self->private_data);
}

std::string said_of(const Rows& rows, std::function<void(ArrowSchema&)> schema,
                    std::function<void(ArrowArray&)> batch) {
  Changed changed{{}, {}, std::move(schema), std::move(batch)};
  export_rows(
      rows, [&]() -> Result<Rows> { return part(rows, 0, 0); }, "rows",
      changed.error, &changed.from);
  ArrowArrayStream stream = {
      [](ArrowArrayStream* self, ArrowSchema* out) {
        const int code = to(self).from.get_schema(&to(self).from, out);
        if (to(self).schema) to(self).schema(*out);
        return code;
      },
      [](ArrowArrayStream* self, ArrowArray* out) {
        const int code = to(self).from.get_next(&to(self).from, out);
        if (to(self).batch && out->release != nullptr) to(self).batch(*out);
        return code;
      },
      [](ArrowArrayStream* self) {
        return to(self).from.get_last_error(&to(self).from);
      },
      [](ArrowArrayStream* self) {
        to(self).from.release(&to(self).from);
        self->release = nullptr;
      },
      &changed};
  const auto got = import_rows(stream, "a.parquet");
  return got ? "" : got.error().message;
}

TEST(ImportRows, RefuseWhatIsNoRowByFileRowAndColumn) {
  const Rows rows = drawn(4, 3);
  const auto at = [](RowColumn c) { return static_cast<size_t>(c); };
  EXPECT_EQ(said_of(rows, nullptr, nullptr), "");
  const auto name = [&](RowColumn c, const char* to) {
    return [&, c, to](ArrowSchema& s) { s.children[at(c)]->name = to; };
  };
  EXPECT_EQ(said_of(rows, name(RowColumn::ast_depth, "more"), nullptr), "");
  EXPECT_EQ(said_of(rows, name(RowColumn::loss_mask, "more"), nullptr),
            "[data] rows must have the column loss_mask, found none for "
            "'a.parquet'");
  EXPECT_EQ(said_of(rows, name(RowColumn::loss_mask, "doc_ids"), nullptr),
            "[data] column doc_ids must be there once, of int32 in lists of a "
            "fixed size, found it twice for 'a.parquet'");
  EXPECT_NE(said_of(
                rows,
                [&](ArrowSchema& s) {
                  s.children[at(RowColumn::num_docs)]->format = "l";
                },
                nullptr)
                .find("column num_docs must be there once, of int32"),
            std::string::npos);
  EXPECT_NE(said_of(
                rows,
                [&](ArrowSchema& s) {
                  s.children[at(RowColumn::doc_ids)]->format = "+w:77";
                },
                nullptr)
                .find("column doc_ids must be lists of ["),
            std::string::npos);
  // Bit 2 is the first that is unset: row 2, or a value within a row of pairs.
  static const unsigned char bits[] = {0xfb, 0xff, 0xff, 0xff};
  const auto with_null = [](ArrowArray& array) {
    array.null_count = 1;
    array.buffers[0] = bits;
  };
  EXPECT_EQ(said_of(rows, nullptr,
                    [&](ArrowArray& b) {
                      with_null(*b.children[at(RowColumn::num_docs)]);
                    }),
            "[data] column num_docs must have no null, found one for row 2 of "
            "'a.parquet'");
  EXPECT_EQ(
      said_of(rows, nullptr,
              [&](ArrowArray& b) {
                with_null(*b.children[at(RowColumn::call_edges)]->children[0]);
              }),
      "[data] column call_edges must have no null, found one for row 1 "
      "of 'a.parquet'");
  static const int32_t counts[] = {99, 99, 99, 99};
  EXPECT_NE(said_of(rows, nullptr,
                    [&](ArrowArray& b) {
                      b.children[at(RowColumn::num_docs)]->buffers[1] = counts;
                    })
                .find("num_docs"),
            std::string::npos);
}

TEST(ImportRows, WhatAStreamTellsIsCheckedBeforeItIsRead) {
  const Rows rows = drawn(4, 3);
  const auto ids = static_cast<size_t>(RowColumn::input_ids);
  const auto batch = [&](const std::function<void(ArrowArray&)>& spoil) {
    return said_of(rows, nullptr, spoil);
  };
  EXPECT_EQ(batch([&](ArrowArray& b) { --b.children[ids]->length; }),
            "[data] a column must be as long as its batch, 4, found 3 for "
            "column 0 of the rows from 0 on of 'a.parquet'");
  EXPECT_EQ(batch([&](ArrowArray& b) { b.length = -1; }),
            "[data] an array's length must be 0 to 281474976710656, found -1 "
            "for the rows from 0 on of 'a.parquet'");
  EXPECT_NE(
      batch([&](ArrowArray& b) {
        b.children[ids]->children[0]->buffers[1] = nullptr;
      })
          .find("for the values of column input_ids of the rows from 0 on "
                "of 'a.parquet'"),
      std::string::npos);
  EXPECT_NE(batch([&](ArrowArray& b) {
              --b.children[ids]->children[0]->length;
            }).find("for column input_ids of the rows from 0 on"),
            std::string::npos);
  static const unsigned char third[] = {0xfb};
  static const void* nulls[] = {third};
  EXPECT_EQ(batch([&](ArrowArray& b) {
              b.null_count = 1;
              b.buffers = nulls;
            }),
            "[data] a row must be there, found null for row 2 of 'a.parquet'");
  const auto schema = [&](const std::function<void(ArrowSchema&)>& spoil) {
    return said_of(rows, spoil, nullptr);
  };
  EXPECT_EQ(schema([](ArrowSchema& s) { s.format = "i"; }),
            "[data] a file must have columns, found another type for "
            "'a.parquet'");
  static const char text[] = "\1\0\0\0\6\0\0\0pad_id\1\0\0\0x";
  EXPECT_EQ(
      schema([](ArrowSchema& s) { s.metadata = text; }),
      "[data] pad_id must be an integer of 32 bits, found 'x' for 'a.parquet'");
  // Claims room for chunks that the file does not have.
  static const char claim[] = "\1\0\0\0\12\0\0\0max_chunks\10\0\0\00016777216";
  EXPECT_EQ(schema([](ArrowSchema& s) {
              for (const RowColumn c :
                   {RowColumn::chunk_starts, RowColumn::chunk_ends,
                    RowColumn::chunk_kinds}) {
                s.children[static_cast<size_t>(c)]->name = "more";
              }
              s.metadata = claim;
            }),
            "[data] column chunk_starts must be there where a row has more "
            "than 128 numbers of it, found none for 16777216 of 'a.parquet'");
}

TEST(RowsInBytes, AreRefusedByTheirFile) {
  const std::string good = *encode_rows(drawn(2, 1));
  ASSERT_TRUE(decode_rows(good, "a.safetensors"));
  for (const std::string& bytes :
       {std::string(), good.substr(0, 5), good.substr(0, 60),
        good.substr(0, good.size() - 1), std::string("\2\0\0\0\0\0\0\0{}", 10),
        std::string("\2\0\0\0\0\0\0\0[]", 10),
        std::string("\377\377\377\377\377\377\377\377", 8)}) {
    const auto rows = decode_rows(bytes, "a.safetensors");
    ASSERT_FALSE(rows);
    std::string said = rows.error().message;
    if (said.ends_with(')')) said.pop_back();  // "(in 'a.safetensors')"
    EXPECT_TRUE(said.ends_with("'a.safetensors'")) << said;
  }
}

class RowFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (auto found = arrow_component(); !found) {
      GTEST_SKIP() << found.error().message;
    }
  }
  testing::TempFolder folder_;
};

TEST_F(RowFiles, AreLoadedAsTheyWereSaved) {
  for (const char* name : {"a.parquet", "a.arrow", "a.arrows"}) {
    const std::string path = folder_.file(name);
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const Rows want = drawn(static_cast<int64_t>(seed), seed);
      const auto saved = save_row_file(path, in_parts(want));
      ASSERT_TRUE(saved) << saved.error().message;
      const auto got = load_rows(path);
      ASSERT_TRUE(got) << got.error().message;
      EXPECT_EQ(*got, want);
      const auto whole = save_rows(path, want);
      ASSERT_TRUE(whole) << whole.error().message;
      EXPECT_EQ(load_rows(path).value(), want);
    }
  }
}

TEST_F(RowFiles, OfAnotherKindAreRefused) {
  const auto documents = load_rows("examples/sources.parquet");
  ASSERT_FALSE(documents);
  EXPECT_EQ(documents.error().message,
            "[data] column input_ids must be there once, of int32 in lists of "
            "a fixed size, found another type for 'examples/sources.parquet'");
  EXPECT_FALSE(load_rows(folder_.file("none.parquet")));
  const std::string path = folder_.file("broken.parquet");
  ASSERT_TRUE(save_row_file(path, in_parts(drawn(5, 1))));
  const auto bytes = read_file(path, 1 << 20);
  ASSERT_TRUE(write_file(path, bytes->substr(0, bytes->size() / 2)));
  EXPECT_FALSE(load_rows(path));
}

}  // namespace
}  // namespace tessera::data
