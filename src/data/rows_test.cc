// The rules for a packed row, and each way to break them.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/fail.h"
#include "base/files.h"
#include "data/row_file.h"
#include "tessera/batch.h"
#include "tests/temp_folder.h"

namespace tessera::data {
namespace {

using enum RowColumn;

// Two rows of 8 tokens: documents of 3 and 2 tokens and padding; one of 8.
Rows two_rows() {
  Rows rows = *Rows::make({8, 4, 4}, 2, 7);
  const auto put = [&](RowColumn c, int64_t r, std::vector<int32_t> values) {
    std::copy(values.begin(), values.end(), rows.row(c, r).begin());
  };
  put(input_ids, 0, {1, 2, 3, 4, 5});
  put(target_ids, 0, {2, 3, 7, 5, 7});
  put(loss_mask, 0, {1, 1, 0, 1, 0});
  put(doc_ids, 0, {0, 0, 0, 1, 1});
  put(positions, 0, {0, 1, 2, 0, 1});
  put(valid_token_count, 0, {5});
  put(num_docs, 0, {2});
  put(chunk_starts, 0, {0, 2, 3});
  put(chunk_ends, 0, {2, 3, 5});
  put(num_chunks, 0, {3});
  put(call_edges, 0, {1, 0, 2, 2});
  put(num_call_edges, 0, {2});
  put(type_edges, 0, {0, 1});
  put(num_type_edges, 0, {1});
  put(doc_ids, 1, std::vector<int32_t>(8, 0));
  put(valid_token_count, 1, {8});
  put(num_docs, 1, {1});
  return rows;
}

std::string message(const Rows& rows) {
  const Result<void> checked = check_rows(rows, "a.safetensors");
  return checked ? "" : checked.error().message;
}

TEST(PackedRows, TheTableHasEveryColumnOnce) {
  ASSERT_EQ(row_columns().size(), kRowColumns);
  EXPECT_EQ(spec_of(input_ids).name, "input_ids");
  EXPECT_EQ(spec_of(num_type_edges).name, "num_type_edges");
  EXPECT_EQ(spec_of(valid_token_count).unit, RowUnit::row);
  std::set<std::string_view> names;
  int required = 0;
  for (const RowColumnSpec& spec : row_columns()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    required += spec.required ? 1 : 0;
  }
  EXPECT_EQ(required, 6);
}

TEST(PackedRows, TheirPageHasTheTable) {
  const auto page = read_file("docs/data.md", 1 << 20);
  ASSERT_TRUE(page) << page.error().message;
  const char* const shapes[] = {"[]", "[T]", "[C]", "[E, 2]"};
  size_t last = 0;
  for (const RowColumnSpec& spec : row_columns()) {
    const std::string line = fmt::format(
        "\n| `{}` | {} | {} | {} | {} |\n", spec.name,
        shapes[static_cast<size_t>(spec.unit)], spec.required ? "yes" : "no",
        spec.pad_id ? "the pad id" : std::to_string(spec.padding), spec.about);
    const size_t at = page->find(line, last == 0 ? 0 : last - 1);
    ASSERT_NE(at, std::string::npos) << line;
    ASSERT_TRUE(last == 0 || at == last - 1) << line;
    last = at + line.size();
  }
}

TEST(PackedRows, ShapesFollowFromTheTokens) {
  EXPECT_EQ(RowShape::of(1024), (RowShape{1024, 128, 256}));
  EXPECT_EQ(RowShape::of(8192), (RowShape{8192, 256, 512}));
  EXPECT_EQ(RowShape::of(8192).array(type_edges, 3),
            (std::vector<int64_t>{3, 512, 2}));
  EXPECT_FALSE(Rows::make(RowShape::of(0), 1));
  EXPECT_FALSE(Rows::make(RowShape::of(8192), int64_t{1} << 40));
  EXPECT_FALSE(Rows::make({8, -1, 0}, 1));
}

TEST(PackedRows, GoodOnesAreFactsAsTheyAre) {
  const Rows rows = two_rows();
  EXPECT_EQ(message(rows), "");
  Request request;
  request.masks = {*parse_mask("causal & documents")};
  request.batch = 2;
  request.q_len = request.kv_len = 8;
  const auto batch = BorrowedBatch::make(request, rows.facts());
  ASSERT_TRUE(batch) << batch.error().message;
  EXPECT_EQ(batch->plan().legal_pairs, (std::vector<int64_t>{6 + 3, 36}));
}

struct Broken {
  RowColumn column;
  int64_t row;
  size_t at;
  int32_t value;
  const char* says;
};

TEST(PackedRows, EachBrokenRuleIsNamed) {
  const Broken cases[] = {
      {doc_ids, 0, 4, 0,
       "[data] doc_ids must not fall within the valid tokens, found 0 for "
       "element 4 of row 0 of 'a.safetensors'"},
      {doc_ids, 0, 0, 1, "doc_ids must count 0, 1, 2, ..., found 1"},
      {doc_ids, 0, 0, -1, "doc_ids must be 0 or more, found -1"},
      {doc_ids, 0, 3, 2, "doc_ids must count 0, 1, 2, ..., found 2"},
      {doc_ids, 0, 6, 1, "doc_ids must be -1 where the row has no more"},
      {valid_token_count, 1, 0, 9, "valid_token_count must be 0 to 8, found 9"},
      {num_docs, 0, 0, 3, "num_docs must count the documents, 2, found 3"},
      {loss_mask, 0, 1, 2, "loss_mask must be 0 or 1, found 2"},
      {loss_mask, 0, 5, 1, "loss_mask must be 0 where the row has no more"},
      {input_ids, 0, 2, -3, "input_ids must be 0 or more, found -3"},
      {target_ids, 0, 0, -1, "target_ids must be 0 or more, or the pad id"},
      {target_ids, 0, 2, -2, "target_ids must be 0 or more, or the pad id"},
      {input_ids, 0, 7, 1, "input_ids must be 7 where the row has no more"},
      {target_ids, 0, 7, 1, "target_ids must be 7 where"},
      {ast_depth, 0, 5, 1, "ast_depth must be 0 where the row has no more"},
      {num_chunks, 0, 0, 5, "num_chunks must be 0 to 4, found 5"},
      {chunk_starts, 0, 1, 5, "chunk_starts must be one of the row's valid"},
      {chunk_starts, 0, 0, -1, "chunk_starts must be one of the row's valid"},
      {chunk_ends, 0, 0, 0, "chunk_ends must be after the chunk's start"},
      {chunk_ends, 0, 1, 6, "chunk_ends must be after the chunk's start and"},
      {chunk_ends, 0, 0, 4, "chunk_ends must stay in the document of its"},
      {call_edges, 0, 1, 3, "call_edges must join chunks of its row, found 3"},
      {call_edges, 0, 0, -1, "call_edges must join chunks of its row"},
      {call_edges, 0, 0, 2,
       "[data] call_edges must join chunks of one document, 1, found 0 for "
       "element 1 of row 0 of 'a.safetensors'"},
      {call_edges, 0, 3, 1, "must join chunks of one document, 1, found 0"},
      {type_edges, 0, 1, 2,
       "[data] type_edges must join chunks of one document, 0, found 1 for "
       "element 1 of row 0 of 'a.safetensors'"},
      {num_type_edges, 1, 0, 1, "type_edges must join chunks of its row"},
  };
  for (const Broken& c : cases) {
    Rows rows = two_rows();
    rows.row(c.column, c.row)[c.at] = c.value;
    const std::string said = message(rows);
    EXPECT_NE(said.find(c.says), std::string::npos) << said << "\n" << c.says;
    EXPECT_NE(said.find(fmt::format("row {} of", c.row)), std::string::npos)
        << said;
  }
  Rows rows = two_rows();
  rows.columns[0].pop_back();
  EXPECT_NE(message(rows).find("input_ids must hold 16 numbers, found 15"),
            std::string::npos);
}

// The pad id is in no document, and may be outside of a model's vocabulary.
TEST(PackedRows, ATargetThatDoesNotCountMayBeANegativePadId) {
  Rows rows = *Rows::make({8, 4, 4}, 1, -1);
  rows.row(valid_token_count, 0)[0] = 2;
  rows.row(num_docs, 0)[0] = 1;
  for (const size_t t : {0, 1}) {
    rows.row(doc_ids, 0)[t] = 0;
    rows.row(input_ids, 0)[t] = 5;
    rows.row(target_ids, 0)[t] = 5;
    rows.row(loss_mask, 0)[t] = 1;
  }
  EXPECT_EQ(message(rows), "");
  rows.row(target_ids, 0)[1] = -1;
  EXPECT_NE(message(rows).find("target_ids must be 0 or more"),
            std::string::npos);
  rows.row(loss_mask, 0)[1] = 0;
  EXPECT_EQ(message(rows), "");
  rows.row(input_ids, 0)[1] = -1;
  EXPECT_NE(message(rows).find("input_ids must be 0 or more, found -1"),
            std::string::npos);
}

TEST(PackedRows, AFileGivesThemBack) {
  const testing::TempFolder folder;
  const std::string path = folder.file("rows.safetensors");
  const Rows rows = two_rows();
  const Result<void> saved = save_rows(path, rows);
  ASSERT_TRUE(saved) << saved.error().message;
  const auto again = load_rows(path);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, rows);
}

// Files have every column, so readers need no rule for missing ones.
TEST(PackedRows, EveryFileHasEveryColumn) {
  const Rows plain = *Rows::make({8, 4, 4}, 2, 7);
  const std::string bytes = *encode_rows(plain);
  const std::string other_bytes = *encode_rows(two_rows());
  const Safetensors file = *parse_safetensors(bytes);
  const Safetensors other = *parse_safetensors(other_bytes);
  EXPECT_EQ(file.tensors.size(), kRowColumns);
  ASSERT_EQ(other.tensors.size(), kRowColumns);
  for (const auto& [name, tensor] : file.tensors) {
    ASSERT_TRUE(other.tensors.contains(name)) << name;
    EXPECT_EQ(tensor.dtype, other.tensors.at(name).dtype) << name;
    EXPECT_EQ(tensor.shape, other.tensors.at(name).shape) << name;
  }
  // Older files lack columns that hold only padding.
  Safetensors before = file;
  for (const RowColumnSpec& spec : row_columns()) {
    if (!spec.required) before.tensors.erase(std::string(spec.name));
  }
  const auto rows = decode_rows(*write_safetensors(before), "a");
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(*rows, plain);
}

TEST(PackedRows, AFileThatLacksWhatItMustHaveIsRefused) {
  const Rows rows = two_rows();
  const std::string bytes = *encode_rows(rows);
  const auto refused = [&](auto&& change) -> std::string {
    Safetensors file = *parse_safetensors(bytes);
    change(file);
    const auto read = decode_rows(*write_safetensors(file), "a");
    return read ? "" : read.error().message;
  };
  EXPECT_EQ(refused([](Safetensors&) {}), "");
  EXPECT_EQ(refused([](Safetensors& f) { f.tensors.erase("ast_depth"); }), "");
  EXPECT_EQ(refused([](Safetensors& f) { f.tensors.erase("loss_mask"); }),
            "[data] rows must have the column loss_mask, found none for 'a'");
  EXPECT_EQ(refused([](Safetensors& f) { f.tensors.erase("input_ids"); }),
            "[data] rows must have the column input_ids, found none for 'a'");
  EXPECT_EQ(
      refused([](Safetensors& f) { f.tensors["doc_ids"].dtype = Dtype::f32; }),
      "[data] column doc_ids must be I32, found F32 for 'a'");
  EXPECT_EQ(refused([](Safetensors& f) { f.tensors["doc_ids"].shape = {16}; }),
            "[data] column doc_ids must be [2, 8], found [16] for 'a'");
  EXPECT_EQ(refused([](Safetensors& f) { f.metadata["pad_id"] = "7x"; }),
            "[data] pad_id must be an integer of 32 bits, found '7x' for 'a'");
  EXPECT_EQ(refused([](Safetensors& f) { f.metadata.erase("pad_id"); }),
            "[data] input_ids must be 0 where the row has no more, found 7 for "
            "element 5 of row 0 of 'a'");
  // If the file does not give the room, it follows from the tokens.
  EXPECT_EQ(
      refused([](Safetensors& f) { f.metadata.erase("max_chunks"); }),
      "[data] column chunk_starts must be [2, 128], found [2, 4] for 'a'");
}

// A file of a few bytes must not make the reader allocate gigabytes.
TEST(PackedRows, RoomThatAFileClaimsMustBeThere) {
  const std::string bytes = *encode_rows(two_rows());
  const auto with = [&](const char* key,
                        const std::string& value) -> std::string {
    Safetensors file = *parse_safetensors(bytes);
    for (const char* const name :
         {"chunk_starts", "chunk_ends", "chunk_kinds", "num_chunks",
          "call_edges", "num_call_edges", "type_edges", "num_type_edges"}) {
      file.tensors.erase(name);
    }
    file.metadata[key] = value;
    const auto read = decode_rows(*write_safetensors(file), "a");
    return read ? "" : read.error().message;
  };
  EXPECT_EQ(with("max_chunks", "128"), "");
  EXPECT_EQ(with("max_edges", "256"), "");
  for (const char* const chunks : {"129", "16777216"}) {
    EXPECT_EQ(with("max_chunks", chunks),
              fmt::format("[data] column chunk_starts must be there where a "
                          "row has more than 128 numbers of it, found none for "
                          "{} of 'a'",
                          chunks));
  }
  EXPECT_EQ(with("max_edges", "257"),
            "[data] column call_edges must be there where a row has more than "
            "512 numbers of it, found none for 514 of 'a'");
  for (const char* const key : {"max_chunks", "max_edges"}) {
    for (const char* const n :
         {"-1", "16777217", "2147483647", "-2147483648"}) {
      EXPECT_EQ(with(key, n),
                fmt::format("[data] a row must have room for 0 to 16777216 "
                            "chunks and edges, found {} for 'a'",
                            n));
    }
    for (const char* const n :
         {"2147483648", "9223372036854775808", "0x10", "", " 1", "1e3", "1 "}) {
      EXPECT_EQ(
          with(key, n),
          fmt::format(
              "[data] {} must be an integer of 32 bits, found '{}' for 'a'",
              key, n));
    }
  }
}

TEST(PackedRows, RoomAboveTheUsualIsWrittenAndReadBack) {
  const testing::TempFolder folder;
  const std::string path = folder.file("rows.safetensors");
  for (const RowShape& shape :
       {RowShape{8, 300, 4}, RowShape{8, 4, 700}, RowShape{8, 0, 0}}) {
    const Rows rows = *Rows::make(shape, 2, 7);
    ASSERT_TRUE(save_rows(path, rows));
    const auto again = load_rows(path);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, rows);
  }
}

}  // namespace
}  // namespace tessera::data
