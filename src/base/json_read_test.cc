// base/json_read_test.cc: strict JSON, and the errors for other text.
#include "base/json_read.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

#include "tests/little_memory.h"

namespace tessera {
namespace {

std::string message(std::string_view text) {
  const auto r = parse_json(text, "j");
  return r.ok() ? "no error" : r.error().message;
}

TEST(JsonRead, ReadsEveryKindOfValue) {
  const auto r = parse_json(
      R"( {"a": [1, -2, 2.5, true, null, "s"], "b": {"c": {}}, "d": []} )",
      "j");
  ASSERT_TRUE(r.ok());
  EXPECT_EQ((**r).dump(),
            R"({"a":[1,-2,2.5,true,null,"s"],"b":{"c":{}},"d":[]})");
}

TEST(JsonRead, Refuses) {
  EXPECT_EQ(message(""),
            "[j] text must be valid JSON, found the end of the text for line "
            "1, column 1");
  EXPECT_EQ(message("{\n  \"a\": nan}"),
            "[j] text must be valid JSON, found 'a' for line 2, column 9");
  EXPECT_EQ(message("{} x"),
            "[j] text must be valid JSON, found 'x' for line 1, column 4");
  EXPECT_EQ(message("{\"a\": 1,}"),
            "[j] text must be valid JSON, found '}' for line 1, column 9");
  EXPECT_EQ(message("\"\xff\""),
            "[j] text must be valid JSON, found '\\xff' for line 1, column 2");
  EXPECT_EQ(message("[1e999]"),
            "[j] text must be valid JSON, found '9' for line 1, column 6");
  EXPECT_EQ(message(R"({"a": 1, "b": {"c": 1, "c": 2}})"),
            "[j] a key must appear once, found it twice for 'c'");
}

TEST(JsonRead, AZeroByteIsNoEnd) {
  using std::string_view_literals::operator""sv;
  for (const auto& [text, column] : {std::pair("{\"a\": 1}\0{\"b\": 2} x"sv, 9),
                                     {"[1]\0"sv, 4},
                                     {"1 \0"sv, 3},
                                     {"[1, \0 2]"sv, 5},
                                     {"\0"sv, 1},
                                     {"\"a\0\""sv, 3}}) {
    EXPECT_EQ(message(text),
              "[j] text must be valid JSON, found '\\x00' for line 1, column " +
                  std::to_string(column));
  }
}

TEST(JsonRead, DepthHasALimit) {
  const auto nested = [](size_t n) {
    return std::string(n, '[') + std::string(n, ']');
  };
  EXPECT_EQ(message(nested(kMaxJsonDepth)), "no error");
  EXPECT_EQ(message(nested(kMaxJsonDepth + 1)),
            "[j] JSON must nest at most 16 deep, found 17 for a value");
  EXPECT_EQ(message(std::string(10'000'000, '[')),
            "[j] JSON must nest at most 16 deep, found 17 for a value");
  EXPECT_EQ(message([] {
              std::string s;
              for (int i = 0; i < 100'000; ++i) s += "{\"a\":";
              return s;
            }()),
            "[j] JSON must nest at most 16 deep, found 17 for a value");
}

// No value can escape ParsedJson's destructor.
static_assert(!std::is_copy_constructible_v<ParsedJson>);
static_assert(!std::is_copy_assignable_v<ParsedJson>);
static_assert(std::is_nothrow_move_constructible_v<ParsedJson>);
static_assert(
    std::is_same_v<decltype(*std::declval<ParsedJson&>()), const Json&>);

TEST(JsonRead, AValueMayMove) {
  auto a = parse_json(R"({"a": [1, [2, {"b": [3, "s"]}], {}], "c": "s"})", "j");
  auto b = parse_json("[7]", "j");
  ASSERT_TRUE(a.ok() && b.ok());
  const Json whole = **a;
  *b = std::move(*a);
  EXPECT_EQ(**b, whole);
  const ParsedJson c = std::move(*b);
  EXPECT_EQ(*c, whole);
}

#ifndef TESSERA_SANITIZED
// Memory runs out within a text, and right after one, so that the parsed value
// must be freed without an allocation.
TEST(JsonRead, NoMemoryIsNoEndOfTheProcess) {
  std::string numbers = "[0", fields = "{";
  // Slightly below the capacity of an array, which is a power of two.
  for (int i = 1; i < 250'000; ++i) numbers += ",0";
  for (int i = 0; i < 60'000; ++i) fields += '"' + std::to_string(i) + "\":0,";
  numbers += "]";
  fields += "\"\":0}";
  for (const std::string& text :
       {numbers, fields, "{\"a\":[[" + numbers + "]]}"}) {
    const auto read_and_move = [&] {
      auto first = parse_json("[[1], {}]", "j");
      auto read = parse_json(text, "j");
      first = std::move(read);
    };
    for (uint64_t halves = 0; halves <= 16; ++halves) {
      EXPECT_TRUE(testing::ends_by_itself(halves << 19, read_and_move))
          << halves << "/2 MiB for " << text.substr(0, 8);
    }
  }
}
#endif

TEST(JsonRead, IntegersAreIntegers) {
  const auto read = [](std::string_view text) -> std::string {
    const auto parsed = parse_json(text, "j");
    const auto r = read_int(**parsed, "j", "n", -5, INT64_MAX);
    return r.ok() ? std::to_string(*r) : r.error().message;
  };
  EXPECT_EQ(read("7"), "7");
  EXPECT_EQ(read("-5"), "-5");
  EXPECT_EQ(read("9223372036854775807"), "9223372036854775807");
  const std::string rule =
      "[j] n must be an integer of -5 to 9223372036854775807, found ";
  EXPECT_EQ(read("-6"), rule + "the integer -6 for it");
  EXPECT_EQ(read("9223372036854775808"),
            rule + "the integer 9223372036854775808 for it");
  EXPECT_EQ(read("18446744073709551616"),
            rule + "the float 1.8446744073709552e+19 for it");
  EXPECT_EQ(read("1.0"), rule + "the float 1.0 for it");
  EXPECT_EQ(read("true"), rule + "true for it");
  EXPECT_EQ(read("null"), rule + "null for it");
  EXPECT_EQ(read("[1]"), rule + "an array of 1 for it");
  EXPECT_EQ(read("{}"), rule + "an object for it");
  EXPECT_EQ(read("\"7\""), rule + "the string '7' for it");
}

TEST(JsonRead, BooleansAreBooleans) {
  EXPECT_EQ(*read_bool(true, "j", "b"), true);
  EXPECT_EQ(*read_bool(false, "j", "b"), false);
  const auto refused = [](const Json& value) {
    const auto r = read_bool(value, "j", "b");
    return r ? "read" : r.error().message;
  };
  const std::string rule = "[j] b must be true or false, found ";
  EXPECT_EQ(refused(1), rule + "the integer 1 for it");
  EXPECT_EQ(refused("true"), rule + "the string 'true' for it");
  EXPECT_EQ(refused(nullptr), rule + "null for it");
}

}  // namespace
}  // namespace tessera
