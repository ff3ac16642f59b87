// A plain line is read as its JSON tree; lines that are not plain are refused.
#include "data/plain_line.h"

#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_read.h"
#include "data/json_document.h"

namespace tessera::data {
namespace {

using namespace std::string_view_literals;
using Numbers = std::vector<int32_t>;

Numbers numbers_of(const Json& value) {
  if (value.is_number()) return {value.get<int32_t>()};
  Numbers out;
  for (const Json& item : value) {
    for (const int32_t n : numbers_of(item)) out.push_back(n);
  }
  return out;
}

void expect_as_tree(const PlainLine& plain, std::string_view line) {
  const auto tree = parse_json(line, "data");
  ASSERT_TRUE(tree) << tree.error().message;
  const Json& object = **tree;
  ASSERT_TRUE(object.is_object());
  EXPECT_EQ(object.size(), plain.known.count() + plain.others.size());
  for (const std::string_view name : plain.others) {
    EXPECT_TRUE(object.contains(name)) << name;
    EXPECT_FALSE(field_called(name)) << name;
  }
  for (size_t f = 0; f < kFields; ++f) {
    const auto field = static_cast<Field>(f);
    const auto at = object.find(name_of(field));
    ASSERT_EQ(at != object.end(), plain.known.test(f)) << name_of(field);
    if (at == object.end()) continue;
    if (field == Field::chunk_unit) {
      EXPECT_EQ(at->get<std::string>(), plain.chunk_unit);
    } else {
      EXPECT_EQ(numbers_of(*at), plain.numbers[f]) << name_of(field);
    }
  }
}

constexpr std::string_view kPlain[] = {
    "{}",
    " \t\r{ } ",
    "{\"input_ids\":[]}",
    "{\"input_ids\" : [ 0 ,1,\t-0, 2147483647 ]\r, "
    "\"ast_depth\":[-2147483648]}",
    "{\"call_edges\":[[1,0],[2,1]],\"type_edges\":[],\"token_spans\":[[0,5]]}",
    "{\"chunk_unit\":\"a b~!\",\"loss_mask\":[1,0]}",
    "{\"a\":\"\",\"b\":null,\"\":true,\"c\":false,\"d\":-7}",
};

TEST(PlainLine, IsReadAsItsTree) {
  for (const std::string_view line : kPlain) {
    SCOPED_TRACE(line);
    const auto plain = read_plain_line(line);
    ASSERT_TRUE(plain);
    expect_as_tree(*plain, line);
  }
}

TEST(PlainLine, IsNothingElse) {
  const std::string zero("{\"input_ids\":[1]}\0", 18);
  for (const std::string_view line :
       {// Not JSON.
        "", "{", "}", "[]", "{\"input_ids\":[1]", "{\"input_ids\":[1}",
        "{\"input_ids\":[1]}}", "{\"input_ids\":[1]} 2", "{\"input_ids\":[1,]}",
        "{\"input_ids\":[,1]}", "{\"input_ids\":[1 2]}", "{\"input_ids\":[01]}",
        "{\"input_ids\":[-01]}", "{\"input_ids\":[00]}", "{\"input_ids\":[+1]}",
        "{\"input_ids\":[-]}", "{\"input_ids\":[- 1]}", "{\"input_ids\":[1.]}",
        "{\"input_ids\":[1]},", "{\"input_ids\":[1],}", "{,}", "{\"a\"}",
        "{\"a\":}", "{\"a\":nul}", "{\"a\":nulls}", "{a:1}", "{\"a\":\"b}",
        "{\"a\":\"\t\"}", "{\"a\":\"\xff\"}", "\xef\xbb\xbf{", "{\"a\":[1]]}",
        "{\"a\":1\"b\":2}", "{\"a\" 1}", "{\"a\":1:2}",
        // JSON, but not plain.
        "{\"input_ids\":[1.0]}", "{\"input_ids\":[1e2]}",
        "{\"input_ids\":[2147483648]}", "{\"ast_depth\":[-2147483649]}",
        "{\"input_ids\":null}", "{\"input_ids\":5}", "{\"input_ids\":[[1]]}",
        "{\"loss_mask\":[true]}", "{\"call_edges\":[[1]]}",
        "{\"call_edges\":[[1,2,3]]}", "{\"call_edges\":[1,2]}",
        "{\"chunk_unit\":1}", "{\"a\":0.5}", "{\"a\":[1]}", "{\"a\":{}}",
        "{\"a\":\"\\n\"}", "{\"\\u0061\":1}", "{\"a\":\"\xc3\xa4\"}",
        "\xef\xbb\xbf{}", "{\"a\":1,\"a\":2}",
        "{\"input_ids\":[1],\"input_ids\":[1]}"}) {
    EXPECT_FALSE(read_plain_line(line)) << line;
  }
  EXPECT_FALSE(read_plain_line(zero));
  EXPECT_FALSE(read_plain_line(std::string_view(zero).substr(0, 16)));
}

// Bytes of plain lines are changed, removed and inserted.
TEST(PlainLine, ThatWasDamagedIsReadAsItsTreeOrNotAtAll) {
  constexpr std::string_view kBytes =
      "{}[]\",: -0123456789.eE\\ntfu\t\n\0\xc3+"sv;
  std::mt19937_64 random(1);
  int plain_lines = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string line(kPlain[random() % std::size(kPlain)]);
    for (uint64_t left = 1 + random() % 2; left > 0; --left) {
      const size_t at = random() % (line.size() + 1);
      const char byte = kBytes[random() % kBytes.size()];
      const uint64_t kind = random() % 3;
      if (kind < 2 && at < line.size()) line.erase(at, 1);
      if (kind > 0) line.insert(at, 1, byte);
    }
    const auto plain = read_plain_line(line);
    if (!plain) continue;
    SCOPED_TRACE(line);
    ++plain_lines;
    ASSERT_NO_FATAL_FAILURE(expect_as_tree(*plain, line));
  }
  EXPECT_GT(plain_lines, 1'000);
}

struct Added {
  bool there = false;
  std::string error;
  FieldSet known;
  Documents documents;
  std::set<std::string> ignored;
};

Added add(const std::string& line) {
  Added out;
  auto known =
      add_json_document(line, "line 3 of 'a'", out.documents, out.ignored);
  out.there = static_cast<bool>(known);
  if (known) {
    out.known = *known;
  } else {
    out.error = known.error().message;
  }
  return out;
}

// A float in an unknown field makes the line not plain.
TEST(PlainLine, GivesTheDocumentAndTheErrorOfItsTree) {
  const std::string chunks =
      "\"chunk_starts\":[0,2],\"chunk_ends\":[2,3],\"call_edges\":[[1,0]]";
  for (const std::string& fields : {
           std::string("\"x\":0"),
           std::string("\"input_ids\":[]"),
           std::string("\"input_ids\":[5,6,7],\"z\":\"a\",\"b\":null"),
           "\"input_ids\":[5,6,7],\"loss_mask\":[1,0,1]," + chunks,
           "\"input_ids\":[5,6,7],\"type_edges\":[[0,1],[0,-4]]," + chunks,
           "\"input_ids\":[5,6,7],\"type_edges\":[[0,1],[-9,1]]," + chunks,
           "\"input_ids\":[5,6,7],\"type_edges\":[[0,7]]," + chunks,
           std::string("\"input_ids\":[5,-6,7]"),
           std::string("\"input_ids\":[5,6],\"loss_mask\":[0,2]"),
           std::string("\"input_ids\":[5,6],\"ast_depth\":[-3,2147483647]"),
           std::string("\"input_ids\":[5,6],\"ast_depth\":[1]"),
           std::string("\"input_ids\":[5,6],\"chunk_starts\":[0]"),
           std::string("\"input_ids\":[5,6],\"chunk_unit\":\"byte\""),
           std::string("\"input_ids\":[5,6],\"token_spans\":[[0,1],[1,2]],") +
               "\"chunk_unit\":\"char\",\"chunk_starts\":[0],\"chunk_ends\":["
               "2]",
       }) {
    const std::string line = "{" + fields + "}";
    const std::string other = "{" + fields + ",\"float\":0.5}";
    SCOPED_TRACE(line);
    ASSERT_TRUE(read_plain_line(line));
    ASSERT_FALSE(read_plain_line(other));
    const Added got = add(line);
    Added want = add(other);
    ASSERT_EQ(got.error, want.error);
    ASSERT_EQ(got.there, want.there);
    if (!got.there) continue;
    want.ignored.erase("float");
    EXPECT_EQ(got.ignored, want.ignored);
    EXPECT_EQ(got.known, want.known);
    EXPECT_EQ(got.documents.token_start, want.documents.token_start);
    EXPECT_EQ(got.documents.input_ids, want.documents.input_ids);
    EXPECT_EQ(got.documents.loss_mask, want.documents.loss_mask);
    EXPECT_EQ(got.documents.structure, want.documents.structure);
    EXPECT_EQ(got.documents.chunk_start, want.documents.chunk_start);
    EXPECT_EQ(got.documents.chunk_starts, want.documents.chunk_starts);
    EXPECT_EQ(got.documents.chunk_ends, want.documents.chunk_ends);
    EXPECT_EQ(got.documents.chunk_kinds, want.documents.chunk_kinds);
    EXPECT_EQ(got.documents.edge_start, want.documents.edge_start);
    EXPECT_EQ(got.documents.edges, want.documents.edges);
  }
}

}  // namespace
}  // namespace tessera::data
