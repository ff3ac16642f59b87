// base/npy_test.cc: .npy files, good and bad.
#include "base/npy.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace tessera {
namespace {

// A file made by hand from the format's description.
std::string file(int major, const std::string& header,
                 const std::string& data) {
  std::string out = "\x93NUMPY";
  out += static_cast<char>(major);
  out += '\0';
  if (major == 1) {
    append(out, static_cast<uint16_t>(header.size()));
  } else {
    append(out, static_cast<uint32_t>(header.size()));
  }
  return out + header + data;
}

template <class T>
std::string data(std::vector<T> values) {
  return std::string(bytes_of(std::span<const T>(values)));
}

std::string header(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr +
         "', 'fortran_order': False, 'shape': " + shape + ", }          \n";
}

std::string message(const std::string& bytes) {
  const auto r = parse_npy(bytes);
  return r.ok() ? "no error" : r.error().message;
}

TEST(Npy, ReadsEveryVersion) {
  for (int v = 1; v <= 3; ++v) {
    const auto r = parse_npy(
        file(v, header("<i4", "(2, 3)"), data<int32_t>({1, 2, 3, 4, 5, -6})));
    ASSERT_TRUE(r.ok()) << r.error().message;
    EXPECT_EQ(r->shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(r->values, (std::vector<int32_t>{1, 2, 3, 4, 5, -6}));
  }
}

TEST(Npy, Reads64BitsThatFit) {
  const auto r = parse_npy(
      file(1, header("<i8", "(2,)"), data<int64_t>({INT32_MIN, INT32_MAX})));
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->values, (std::vector<int32_t>{INT32_MIN, INT32_MAX}));
}

TEST(Npy, ReadsOtherSpellingsOfTheHeader) {
  const std::string h =
      "{\"shape\":(),\"descr\":\"<i4\",\"fortran_order\":False}";
  const auto r = parse_npy(file(1, h, data<int32_t>({9})));
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_TRUE(r->shape.empty());
  EXPECT_EQ(r->values, (std::vector<int32_t>{9}));
}

TEST(Npy, WritesWhatItReads) {
  const std::vector<std::vector<int64_t>> shapes = {
      {}, {0}, {6}, {2, 3}, {1, 2, 3, 1}, {4, 0, 2}};
  for (const auto& shape : shapes) {
    NpyInts a{shape, {}};
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    for (int64_t i = 0; i < n; ++i) {
      a.values.push_back(static_cast<int32_t>(i * 1'000'003'331));
    }
    const auto bytes = write_npy(a.shape, a.values);
    ASSERT_TRUE(bytes.ok());
    EXPECT_EQ((bytes->size() - a.values.size() * 4) % 64, 0u);
    const auto again = parse_npy(*bytes);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(*again, a);
  }
}

TEST(Npy, TheHeaderWrittenIsTheOneNumPyWrites) {
  const auto bytes =
      write_npy(std::vector<int64_t>{3}, std::vector<int32_t>{1, 2, 3});
  ASSERT_TRUE(bytes.ok());
  const std::string want =
      "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }";
  EXPECT_EQ(bytes->substr(10, want.size()), want);
  EXPECT_EQ((*bytes)[127], '\n');
}

TEST(Npy, WriteRefusesAShapeThatIsNotItsValues) {
  const auto r = write_npy(std::vector<int64_t>{2, 2}, std::vector<int32_t>{1});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().message,
            "[npy] a shape must hold its 1 values, found [2, 2]");
}

TEST(Npy, Refuses) {
  const std::string one = data<int32_t>({1});
  const auto with_header = [&](const std::string& h) {
    return message(file(1, h, one));
  };
  const auto with = [&](const std::string& descr, const std::string& shape) {
    return with_header(header(descr, shape));
  };
  const std::string dtype = "[npy] dtype must be '<i4' or '<i8', found ";
  const std::pair<std::string, std::string> cases[] = {
      {message(""), "[npy] the first bytes must be \\x93NUMPY, found ''"},
      {message("PK\x03\x04..."),
       "[npy] the first bytes must be \\x93NUMPY, found 'PK\\x03\\x04..'"},
      {message("\x93NUMPY\x01"),
       "[npy] a file must hold its version, found 7 bytes for at least 8"},
      {message(std::string("\x93NUMPY\x04\0", 8)),
       "[npy] version must be 1.0, 2.0 or 3.0, found 4.0"},
      {message(std::string("\x93NUMPY\x01\x07", 8)),
       "[npy] version must be 1.0, 2.0 or 3.0, found 1.7"},
      {message(std::string("\x93NUMPY\x02\0\0\0", 10)),
       "[npy] a file must hold its header's length, found 10 bytes for at "
       "least 12"},
      {message(std::string("\x93NUMPY\x01\0\xff\xff{", 11)),
       "[npy] a file must hold its whole header, found 1 bytes for 65535"},
      {message(std::string("\x93NUMPY\x03\0\xff\xff\xff\xff{", 13)),
       "[npy] a file must hold its whole header, found 1 bytes for "
       "4294967295"},
      {with("<f4", "(1,)"), dtype + "'<f4' for the array"},
      {with(">i4", "(1,)"), dtype + "'>i4' for the array"},
      {with("<u4", "(1,)"), dtype + "'<u4' for the array"},
      {with("|b1", "(1,)"), dtype + "'|b1' for the array"},
      {with_header("{'descr': [('a', '<i4')], 'fortran_order': False, "
                   "'shape': (1,)}"),
       dtype + "a structured one for the array"},
      {with_header("{'descr': '<i4', 'fortran_order': True, 'shape': (1,)}"),
       "[npy] an array must lie in C order, found fortran_order True"},
      {with("<i4", "(2,)"),
       "[npy] data must hold the shape's 2 values of 4 bytes, found 4 bytes"},
      {with("<i4", "(0,)"),
       "[npy] data must hold the shape's 0 values of 4 bytes, found 4 bytes"},
      {with("<i8", "(1,)"),
       "[npy] data must hold the shape's 1 values of 8 bytes, found 4 bytes"},
      {with("<i4", "(4611686018427387904, 4)"),
       "[npy] data must hold the shape's more than 2^63 values of 4 bytes, "
       "found 4 bytes"},
      {with("<i4", "(4611686018427387905,)"),
       "[npy] data must hold the shape's 4611686018427387905 values of 4 "
       "bytes, found 4 bytes"},
      {with("<i4", "(9223372036854775808,)"),
       "[npy] the header must have a dimension that fits int64, found "
       "'9223372036854775808,'... for byte 51 of it"},
      {with("<i4", "(-1,)"),
       "[npy] the header must have a dimension that fits int64, found "
       "'-1,), }          \\x0a' for byte 51 of it"},
      {with("<i4", "(1)"),
       "[npy] the header must have ',', found "
       "'), }          \\x0a' for byte 52 of it"},
      {with("<i4", "[1]"),
       "[npy] the header must have '(', found '[1], }          \\x0a' for byte "
       "50 of it"},
      {with("<i4", "(" + std::string(66, '1') + ")").substr(0, 55),
       "[npy] the header must have a dimension that fits int64,"},
      {with_header(""),
       "[npy] the header must have '{', found its end for "
       "byte 0 of it"},
      {with_header("{}"),
       "[npy] the header must have the key 'descr', found none"},
      {with_header("{'descr': '<i4'}"),
       "[npy] the header must have the key 'fortran_order', found none"},
      {with_header("{'descr': '<i4', 'fortran_order': False}"),
       "[npy] the header must have the key 'shape', found none"},
      {with_header("{'descr': '<i4', 'descr': '<i4'}"),
       "[npy] a header key must appear once, found 'descr' twice"},
      {with_header("{'other': 1}"),
       "[npy] header keys must be descr, fortran_order and shape, found "
       "'other' for one"},
      {with_header("{'descr': '<i4', 'fortran_order': 0}"),
       "[npy] the header must have True or False, found '0}' for byte 34 of "
       "it"},
      {with_header("{'descr': '<i4"),
       "[npy] the header must have a dtype in quotes, found ''<i4' for byte "
       "10 of it"},
      {with_header("{'descr' '<i4'"),
       "[npy] the header must have ':', found ''<i4'' for byte 9 of it"},
      {with_header("{'descr': '<i4' 'x'"),
       "[npy] the header must have ',' or '}', found ''x'' for byte 16 of it"},
      {with_header("{5: 5}"),
       "[npy] the header must have a key in quotes or '}', found '5: 5}' for "
       "byte 1 of it"},
      {with_header(header("<i4", "(1,)") + "x"),
       "[npy] the header must have the end, found 'x' for byte 68 of it"},
      {message(file(1, header("<i8", "(2,)"),
                    data<int64_t>({5, int64_t{1} << 31}))),
       "[npy] values must fit int32, found 2147483648 for value 1"},
      {message(file(1, header("<i8", "(1,)"), data<int64_t>({INT64_MIN}))),
       "[npy] values must fit int32, found -9223372036854775808 for value 0"},
  };
  for (const auto& [found, want] : cases) EXPECT_EQ(found, want);

  std::string dimensions = "(";
  for (int i = 0; i < 33; ++i) dimensions += "1,";
  EXPECT_EQ(with("<i4", dimensions + ")"),
            "[npy] an array must have at most 32 dimensions, found more for "
            "the shape");
}

TEST(Npy, EveryTruncationIsRefused) {
  const auto bytes = write_npy(std::vector<int64_t>{2, 3},
                               std::vector<int32_t>{1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(bytes.ok());
  for (size_t n = 0; n < bytes->size(); ++n) {
    EXPECT_NE(message(bytes->substr(0, n)), "no error") << n;
  }
  EXPECT_NE(message(*bytes + "x"), "no error");
}

}  // namespace
}  // namespace tessera
