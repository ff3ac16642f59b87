// data/export_rows_test.cc: rows as an Arrow stream, read by its interface.
#include "data/export_rows.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/fail.h"

namespace tessera::data {
namespace {

// Rows of one document each, which have 1, 2, ... tokens.
Rows some_rows(int64_t rows, int32_t pad_id = 7) {
  auto made = Rows::make({8, 3, 2}, rows, pad_id);
  EXPECT_TRUE(made);
  for (int64_t r = 0; r < rows; ++r) {
    const auto length = static_cast<int32_t>(r + 1);
    made->row(RowColumn::valid_token_count, r)[0] = length;
    made->row(RowColumn::num_docs, r)[0] = 1;
    for (int32_t i = 0; i < length; ++i) {
      const auto at = static_cast<size_t>(i);
      made->row(RowColumn::input_ids, r)[at] = 100 * length + i;
      made->row(RowColumn::doc_ids, r)[at] = 0;
      made->row(RowColumn::positions, r)[at] = i;
    }
  }
  return std::move(*made);
}

// The sizes of a schema's nested lists, outermost first.
std::vector<int64_t> sizes_of(const ArrowSchema& schema) {
  std::vector<int64_t> out;
  const ArrowSchema* at = &schema;
  while (at->n_children == 1) {
    out.push_back(std::stol(std::string(at->format).substr(3)));
    at = at->children[0];
  }
  EXPECT_STREQ(at->format, "i");
  return out;
}
std::vector<int32_t> numbers_of(const ArrowArray& array) {
  const ArrowArray* at = &array;
  while (at->n_children == 1) at = at->children[0];
  EXPECT_EQ(at->n_buffers, 2);
  const auto* const begin = static_cast<const int32_t*>(at->buffers[1]);
  return {begin, begin + at->length};
}

TEST(ExportRows, GivesEveryColumnAndOutlivesTheStream) {
  std::vector<Rows> left = {some_rows(1), some_rows(0)};
  const std::vector<Rows> want = {some_rows(3), some_rows(1)};
  size_t next = 0;
  std::optional<Error> error;
  ArrowArrayStream stream = {};
  export_rows(
      some_rows(3), [&]() -> Result<Rows> { return left[next++]; }, "rows",
      error, &stream);
  ArrowSchema schema = {};
  ASSERT_EQ(stream.get_schema(&stream, &schema), 0);
  ASSERT_EQ(schema.n_children, static_cast<int64_t>(kRowColumns));
  ArrowArray batches[3] = {};
  for (ArrowArray& batch : batches) {
    ASSERT_EQ(stream.get_next(&stream, &batch), 0);
  }
  EXPECT_EQ(batches[2].release, nullptr);
  stream.release(&stream);
  EXPECT_EQ(stream.release, nullptr);
  for (size_t b = 0; b < 2; ++b) {
    EXPECT_EQ(batches[b].length, want[b].rows);
    for (size_t c = 0; c < kRowColumns; ++c) {
      const auto column = static_cast<RowColumn>(c);
      EXPECT_EQ(schema.children[c]->name, row_columns()[c].name);
      std::vector<int64_t> sizes = want[b].shape.array(column, 0);
      sizes.erase(sizes.begin());
      EXPECT_EQ(sizes_of(*schema.children[c]), sizes);
      EXPECT_EQ(numbers_of(*batches[b].children[c]), want[b].columns[c]);
    }
  }
  // A column that was moved out outlives its batch.
  ArrowArray column = *batches[0].children[0];
  batches[0].children[0]->release = nullptr;
  batches[0].release(&batches[0]);
  batches[1].release(&batches[1]);
  EXPECT_EQ(numbers_of(column), want[0].columns[0]);
  column.release(&column);
  schema.release(&schema);
  EXPECT_FALSE(error);
}

TEST(ExportRows, BorrowedOnesAreNotCopied) {
  const Rows rows = some_rows(3);
  std::optional<Error> error;
  ArrowArrayStream stream = {};
  export_borrowed_rows(rows, "rows", error, &stream);
  ArrowArray batch = {}, end = {};
  ASSERT_EQ(stream.get_next(&stream, &batch), 0);
  EXPECT_EQ(batch.length, 3);
  for (size_t c = 0; c < kRowColumns; ++c) {
    const ArrowArray* at = batch.children[c];
    while (at->n_children == 1) at = at->children[0];
    EXPECT_EQ(at->buffers[1], rows.columns[c].data());
  }
  ASSERT_EQ(stream.get_next(&stream, &end), 0);
  EXPECT_EQ(end.release, nullptr);
  batch.release(&batch);
  stream.release(&stream);
  EXPECT_FALSE(error);
}

std::string stopped_by(const std::function<Result<Rows>()>& next) {
  std::optional<Error> error;
  ArrowArrayStream stream = {};
  export_rows(some_rows(1), next, "a.arrow", error, &stream);
  ArrowArray batch = {};
  EXPECT_EQ(stream.get_next(&stream, &batch), 0);
  batch.release(&batch);
  for (int i = 0; i < 2; ++i) {  // the error is returned again
    EXPECT_NE(stream.get_next(&stream, &batch), 0);
    EXPECT_EQ(batch.release, nullptr);
  }
  EXPECT_TRUE(error);
  std::string said = stream.get_last_error(&stream);
  stream.release(&stream);
  return said;
}

TEST(ExportRows, StopsWithTheErrorOfRows) {
  EXPECT_EQ(stopped_by([]() -> Result<Rows> { return invalid("x", "gone"); }),
            "[x] gone");
  EXPECT_NE(stopped_by([]() -> Result<Rows> {
              return some_rows(1, 8);
            }).find("must be of one shape and pad id"),
            std::string::npos);
  EXPECT_EQ(stopped_by([]() -> Result<Rows> {
              Rows bad = some_rows(2);
              bad.row(RowColumn::doc_ids, 1)[0] = 5;
              return bad;
            }),
            "[data] doc_ids must count 0, 1, 2, ..., found 5 for element 0 of "
            "row 1 of 'a.arrow'");
}

}  // namespace
}  // namespace tessera::data
