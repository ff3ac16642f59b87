// base/safetensors_test.cc: .safetensors files, good and bad.
#include "base/safetensors.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace tessera {
namespace {

std::string file(const std::string& header, const std::string& data) {
  std::string out;
  append(out, uint64_t{header.size()});
  return out + header + data;
}

template <class T>
std::string data(std::vector<T> values) {
  return std::string(bytes_of(std::span<const T>(values)));
}

std::string message(const std::string& bytes) {
  const auto r = parse_safetensors(bytes);
  return r.ok() ? "no error" : r.error().message;
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string bytes =
      file(R"({"__metadata__":{"format":"pt"},)"
           R"("b":{"dtype":"I64","shape":[2],"data_offsets":[4,20]},)"
           R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}}   )",
           "wxyz" + data<int64_t>({7, -8}));
  const auto r = parse_safetensors(bytes);
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->metadata.at("format"), "pt");
  const auto a = r->find("a");
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(a->dtype, Dtype::bf16);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(a->bytes, "wxyz");
  const auto b = r->find("b");
  ASSERT_TRUE(b.ok());
  // The numbers are at an unaligned offset of the file and are copied out.
  EXPECT_EQ(*int32_values(*b, "b"), (std::vector<int32_t>{7, -8}));
  EXPECT_EQ(int32_values(*a, "a").error().message,
            "[safetensors] dtype must be I32 or I64, found BF16 for tensor "
            "'a'");
  EXPECT_EQ(r->find("c").error().message,
            "[safetensors] the file must hold the tensor 'c', found 'a', 'b'");
  EXPECT_EQ(parse_safetensors(file("{}", ""))->find("c").error().message,
            "[safetensors] the file must hold the tensor 'c', found none");
}

TEST(Safetensors, WritesWhatItReads) {
  const std::string f64 = data<double>({1.5, -2.5});
  const std::string i32 = data<int32_t>({1, 2, 3});
  Safetensors s;
  s.tensors["z"] = {Dtype::f64, {2}, f64};
  s.tensors["a"] = {Dtype::i32, {3, 1}, i32};
  s.tensors["b"] = {Dtype::f16, {3}, "123456"};
  s.tensors["empty"] = {Dtype::f32, {0, 7}, ""};
  s.tensors["scalar"] = {Dtype::f32, {}, "1234"};
  s.tensors["caf\xc3\xa9 \"q\""] = {Dtype::i64, {1}, "12345678"};
  s.metadata["k"] = "v";
  const auto bytes = write_safetensors(s);
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  const auto again = parse_safetensors(*bytes);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->metadata, s.metadata);
  ASSERT_EQ(again->tensors.size(), s.tensors.size());
  for (const auto& [name, t] : s.tensors) {
    const auto found = again->find(name);
    ASSERT_TRUE(found.ok()) << name;
    EXPECT_EQ(found->dtype, t.dtype) << name;
    EXPECT_EQ(found->shape, t.shape) << name;
    EXPECT_EQ(found->bytes, t.bytes) << name;
    const auto at = static_cast<size_t>(found->bytes.data() - bytes->data());
    EXPECT_EQ(at % static_cast<size_t>(byte_width(t.dtype)), 0u) << name;
  }
}

TEST(Safetensors, WriteRefuses) {
  const auto write = [](const std::string& name, Tensor t) {
    Safetensors s;
    s.tensors[name] = std::move(t);
    const auto r = write_safetensors(s);
    return r.ok() ? "no error" : r.error().message;
  };
  EXPECT_EQ(write("t", {Dtype::f32, {2}, "1234"}),
            "[safetensors] a tensor's bytes must fill its shape [2] of F32, "
            "found 4 for 't'");
  EXPECT_EQ(write("t", {Dtype::f32, {-1}, ""}),
            "[safetensors] a tensor's bytes must fill its shape [-1] of F32, "
            "found 0 for 't'");
  EXPECT_EQ(write("__metadata__", {Dtype::f32, {0}, ""}),
            "[safetensors] a tensor must not be named '__metadata__', found "
            "one");
  EXPECT_EQ(write("\xff", {Dtype::f32, {0}, ""}),
            "[safetensors] names and metadata must be UTF-8, found '\\xff'");
}

std::string one(const std::string& dtype, const std::string& shape,
                const std::string& offsets, size_t bytes) {
  return message(file("{\"t\":{\"dtype\":" + dtype + ",\"shape\":" + shape +
                          ",\"data_offsets\":" + offsets + "}}",
                      std::string(bytes, 'x')));
}

TEST(Safetensors, Refuses) {
  const std::string two =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":)";
  const auto second = [&](const std::string& offsets, size_t bytes) {
    return message(file(
        two + R"({"dtype":"F32","shape":[2],"data_offsets":)" + offsets + "}}",
        std::string(bytes, 'x')));
  };
  std::string huge = "[";
  for (int i = 0; i < 33; ++i) huge += "1,";
  huge.back() = ']';
  const std::pair<std::string, std::string> cases[] = {
      {message("1234567"),
       "[safetensors] a file must start with its header's length, found 7 "
       "bytes for at least 8"},
      {message(std::string(8, '\xff')),
       "[safetensors] a header must be at most 16777216 bytes, found "
       "18446744073709551615"},
      {message(file("{}", "").substr(0, 9)),
       "[safetensors] a file must hold its whole header, found 1 bytes for 2"},
      {message(file("[]", "")),
       "[safetensors] the header must be an object, found an array of 0 for "
       "it"},
      {message(file("", "")),
       "[safetensors] text must be valid JSON, found the end of the text for "
       "line 1, column 1"},
      {message(file("{}", "x")),
       "[safetensors] tensors must cover the file's 1 data bytes, found 0"},
      {message(file(R"({"t":1})", "")),
       "[safetensors] tensor 't' must be an object, found the integer 1 for "
       "it"},
      {message(file(R"({"t":{"dtype":"F32","shape":[0]}})", "")),
       "[safetensors] tensor 't' must have the field 'data_offsets', found "
       "none for it"},
      {message(file(R"({"t":{},"t":{}})", "")),
       "[safetensors] a key must appear once, found it twice for 't'"},
      {message(file(R"({"__metadata__":{"a":1}})", "")),
       "[safetensors] metadata 'a' must be a string, found the integer 1 for "
       "it"},
      {message(file(R"({"__metadata__":"a"})", "")),
       "[safetensors] __metadata__ must be an object, found the string 'a' for "
       "it"},
      {one("\"U16\"", "[2]", "[0,4]", 4),
       "[safetensors] dtype must be one of I32, I64, F16, BF16, F32, F64, I8, "
       "I16, U8 and BOOL, found "
       "'U16' for tensor 't'"},
      {one("4", "[4]", "[0,4]", 4),
       "[safetensors] tensor 't' field 'dtype' must be a string, found the "
       "integer 4 for it"},
      {one("\"F32\"", "4", "[0,4]", 4),
       "[safetensors] a shape must be an array of at most 32 dimensions, found "
       "the integer 4 for tensor 't'"},
      {one("\"F32\"", huge, "[0,4]", 4),
       "[safetensors] a shape must be an array of at most 32 dimensions, found "
       "an array of 33 for tensor 't'"},
      {one("\"F32\"", "[-1]", "[0,4]", 4),
       "[safetensors] each dimension of tensor 't' must be an integer of 0 to "
       "9223372036854775807, found the integer -1 for it"},
      {one("\"F32\"", "[1.0]", "[0,4]", 4),
       "[safetensors] each dimension of tensor 't' must be an integer of 0 to "
       "9223372036854775807, found the float 1.0 for it"},
      {one("\"F32\"", "[1]", "[0]", 4),
       "[safetensors] data_offsets must be an array of 2, found an array of 1 "
       "for tensor 't'"},
      {one("\"F32\"", "[1]", "[0,5]", 4),
       "[safetensors] the last offset of tensor 't' must be an integer of 0 to "
       "4, found the integer 5 for it"},
      {one("\"F32\"", "[1]", "[4,0]", 4),
       "[safetensors] the last offset of tensor 't' must be an integer of 4 to "
       "4, found the integer 0 for it"},
      {one("\"F32\"", "[1]", "[0,18446744073709551615]", 4),
       "[safetensors] the last offset of tensor 't' must be an integer of 0 to "
       "4, found the integer 18446744073709551615 for it"},
      {one("\"F32\"", "[2]", "[0,4]", 4),
       "[safetensors] offsets must span the shape's 8 bytes, found 4 for "
       "tensor 't'"},
      {one("\"F32\"", "[4611686018427387904,4]", "[0,4]", 4),
       "[safetensors] a tensor's size must fit int64, found shape "
       "[4611686018427387904, 4] for tensor 't'"},
      {one("\"F64\"", "[4611686018427387904]", "[0,4]", 4),
       "[safetensors] a tensor's size must fit int64, found shape "
       "[4611686018427387904] for tensor 't'"},
      {second("[4,12]", 12),
       "[safetensors] tensors must follow one another without overlap, found "
       "offset 4 for tensor 'b', which is due at 8"},
      {second("[0,8]", 8),
       "[safetensors] tensors must follow one another without overlap, found "
       "offset 0 for tensor 'b', which is due at 8"},
      {second("[12,20]", 20),
       "[safetensors] tensors must follow one another without a hole, found "
       "offset 12 for tensor 'b', which is due at 8"},
      {second("[8,16]", 17),
       "[safetensors] tensors must cover the file's 17 data bytes, found 16"},
  };
  for (const auto& [found, want] : cases) EXPECT_EQ(found, want);

  const Tensor t{Dtype::i64, {1}, "\xff\xff\xff\xff\xff\xff\xff\x7f"};
  EXPECT_EQ(int32_values(t, "t").error().message,
            "[safetensors] values must fit int32, found 9223372036854775807 "
            "for value 0 of tensor 't'");
}

}  // namespace
}  // namespace tessera
