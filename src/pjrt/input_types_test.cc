// pjrt/input_types_test.cc: modules made by hand, valid and broken. Real ones
// are tested in execute_test.cc.
#include "pjrt/input_types.h"

#include <gtest/gtest.h>

namespace tessera::pjrt {
namespace {

std::string message(int field, const std::string& bytes) {
  return std::string{static_cast<char>(field << 3 | 2),
                     static_cast<char>(bytes.size())} +
         bytes;
}
std::string number(int field, int value) {
  return {static_cast<char>(field << 3), static_cast<char>(value)};
}

// F32 [2, 300], its dimensions packed; S32 [5], not packed; BF16 [].
std::string module_bytes() {
  const std::string a =
      number(2, 11) + message(3, std::string("\x02\xac\x02", 3));
  const std::string b = number(2, 4) + number(3, 5);
  const std::string c = number(2, 16);
  const std::string shape = message(1, a) + message(2, number(2, 13)) +
                            message(1, b) + message(1, c) + message(3, "name");
  // A fixed64 and a fixed32 field are skipped.
  return message(1, "module") +
         std::string(
             "\x39"
             "12345678") +
         std::string(
             "\x3d"
             "1234") +
         message(4, shape);
}

TEST(InputTypes, AreReadInTheirOrder) {
  const std::vector<ArrayType> expected = {
      {Dtype::f32, {2, 300}}, {Dtype::i32, {5}}, {Dtype::bf16, {}}};
  const auto types = input_types(module_bytes(), false);
  ASSERT_TRUE(types.ok()) << types.error().message;
  EXPECT_EQ(*types, expected);
  const auto inside =
      input_types(message(1, module_bytes()) + message(2, "options"), true);
  ASSERT_TRUE(inside.ok()) << inside.error().message;
  EXPECT_EQ(*inside, expected);
  EXPECT_TRUE(input_types(message(4, ""), false)->empty());
}

TEST(InputTypes, BrokenBytesAreAnErrorWhereverTheyEnd) {
  const std::string whole = module_bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto types = input_types(whole.substr(0, size), false);
    ASSERT_FALSE(types.ok()) << size;
    EXPECT_EQ(types.error().message,
              "[pjrt] a program must tell its inputs, found bytes that are no "
              "module of XLA");
  }
  EXPECT_FALSE(input_types(std::string(100, '\xff'), false).ok());
  EXPECT_FALSE(input_types(whole, true).ok());
}

TEST(InputTypes, OneThatWeLackIsNamed) {
  const auto types = input_types(
      message(4, message(1, number(2, 11)) + message(1, number(2, 9))), false);
  ASSERT_FALSE(types.ok());
  EXPECT_EQ(types.error().message,
            "[pjrt] a program's inputs must be of BOOL, I8, I16, I32, I64, U8, "
            "F16, BF16, F32 or F64, found XLA's type 9 for input 1");
}

}  // namespace
}  // namespace tessera::pjrt
