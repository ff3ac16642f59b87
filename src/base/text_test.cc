// base/text_test.cc: untrusted text is safe to print.
#include "base/text.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Text, QuotesPlainText) {
  EXPECT_EQ(in_quotes("abc d"), "'abc d'");
  EXPECT_EQ(in_quotes(""), "''");
  EXPECT_EQ(in_quotes("caf\xc3\xa9"), "'caf\xc3\xa9'");
}

TEST(Text, WritesOtherBytesAsHex) {
  EXPECT_EQ(in_quotes(std::string("\x1b[0m\0\x7f", 6)), "'\\x1b[0m\\x00\\x7f'");
  EXPECT_EQ(in_quotes("\xff\xc3"), "'\\xff\\xc3'");
  // An overlong sequence, a surrogate, and a code above the last code point.
  EXPECT_EQ(in_quotes("\xc0\xaf"), "'\\xc0\\xaf'");
  EXPECT_EQ(in_quotes("\xed\xa0\x80"), "'\\xed\\xa0\\x80'");
  EXPECT_EQ(in_quotes("\xf4\x90\x80\x80"), "'\\xf4\\x90\\x80\\x80'");
}

TEST(Text, CutsBetweenCharacters) {
  EXPECT_EQ(in_quotes("abcdef", 4), "'abcd'...");
  EXPECT_EQ(in_quotes("abc\xc3\xa9", 4), "'abc'...");
  EXPECT_EQ(in_quotes("abc\xc3\xa9", 5), "'abc\xc3\xa9'");
}

TEST(Text, KnowsUtf8) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"));
  EXPECT_FALSE(is_utf8("a\xc3"));
  EXPECT_FALSE(is_utf8("\x80"));
}

}  // namespace
}  // namespace tessera
