// base/crc32_test.cc: values that zlib gives.
#include "base/crc32.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera {
namespace {

TEST(Crc32, IsThatOfZlib) {
  EXPECT_EQ(crc32(""), 0u);
  EXPECT_EQ(crc32("123456789"), 0xcbf43926u);
  EXPECT_EQ(crc32(std::string(4, '\0')), 0x2144df1cu);
  EXPECT_EQ(crc32(std::string(32, '\xff')), 0xff6cab0bu);
}

TEST(Crc32, EveryFlippedBitIsSeen) {
  const std::string text = "a program of some bytes";
  for (size_t i = 0; i < 8 * text.size(); ++i) {
    std::string other = text;
    other[i / 8] = static_cast<char>(other[i / 8] ^ 1 << i % 8);
    EXPECT_NE(crc32(other), crc32(text)) << i;
  }
}

}  // namespace
}  // namespace tessera
