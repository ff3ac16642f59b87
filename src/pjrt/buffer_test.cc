// pjrt/buffer_test.cc: copies arrays to devices of real plugins and back, and
// to a plugin that loses them.
#include "pjrt/buffer.h"

#include <sys/mman.h>

#include <limits>

#include "tests/cpu_plugin.h"

namespace tessera::pjrt {
namespace {

using tessera::testing::counted;
using tessera::testing::CpuPlugin;
using tessera::testing::fake_plugin;

constexpr Dtype kDtypes[] = {Dtype::i32, Dtype::i64,    Dtype::f16, Dtype::bf16,
                             Dtype::f32, Dtype::f64,    Dtype::i8,  Dtype::i16,
                             Dtype::u8,  Dtype::boolean};

TEST(ArrayTypes, HaveNamesAndSizes) {
  EXPECT_EQ(describe(ArrayType{Dtype::f32, {8, 128}}), "F32 [8, 128]");
  EXPECT_EQ(describe(ArrayType{Dtype::boolean, {}}), "BOOL []");
  EXPECT_EQ(*byte_size({Dtype::f32, {8, 128}}), 4096);
  EXPECT_EQ(*byte_size({Dtype::bf16, {}}), 2);
  EXPECT_EQ(*byte_size({Dtype::f64, {3, 0, 5}}), 0);
  EXPECT_EQ(byte_size({Dtype::i64, {int64_t{1} << 60}}).error().message,
            "[pjrt] an array's bytes must be in 0..2^63-1, found I64 "
            "[1152921504606846976]");
  EXPECT_FALSE(byte_size({Dtype::i8, {-1}}).ok());
  EXPECT_FALSE(byte_size({Dtype::i8, {INT64_MAX, 2}}).ok());
}

class PjrtBuffer : public CpuPlugin {
 protected:
  // Distinct bytes, aligned or one element off.
  struct Data {
    alignas(kInPlaceAlignment) char bytes[4096 + 64];
    Data() {
      for (size_t i = 0; i < sizeof bytes; ++i) {
        bytes[i] = static_cast<char>(i * 7 + i / 256);
      }
    }
  };
};
TESSERA_FOR_CPU_PLUGINS(PjrtBuffer);

TEST_P(PjrtBuffer, EveryDtypeAndShapeComesBackBitForBit) {
  const std::vector<std::vector<int64_t>> shapes = {
      {}, {1}, {7}, {2, 3}, {3, 1, 4}, {2, 3, 4, 5}, {0}, {4, 0, 2}, {1, 1, 1}};
  static Data data;
  for (const Dtype dtype : kDtypes) {
    for (const auto& dims : shapes) {
      for (const bool aligned : {true, false}) {
        const ArrayType type = {dtype, dims};
        SCOPED_TRACE(describe(type) + (aligned ? "" : " off"));
        const int64_t bytes = *byte_size(type);
        Data mine = data;
        if (dtype == Dtype::boolean) {
          for (char& c : mine.bytes) c = static_cast<char>(c & 1);
        }
        const char* at = mine.bytes + (aligned ? 0 : byte_width(dtype));
        const auto buffer = to_device(*client_, device(), type, at);
        ASSERT_TRUE(buffer.ok()) << buffer.error().message;
        EXPECT_EQ(buffer->type(), type);
        std::vector<char> back(static_cast<size_t>(bytes) + 1, '#');
        const auto ok = to_host(*buffer, back.data(), bytes);
        ASSERT_TRUE(ok.ok()) << ok.error().message;
        EXPECT_EQ(std::memcmp(back.data(), at, static_cast<size_t>(bytes)), 0);
        EXPECT_EQ(back.back(), '#');
      }
    }
  }
}

TEST_P(PjrtBuffer, ValuesThatArithmeticWouldChangeComeBack) {
  alignas(kInPlaceAlignment)
      const float odd[] = {-0.0F, std::numeric_limits<float>::denorm_min(),
                           std::numeric_limits<float>::signaling_NaN(),
                           -std::numeric_limits<float>::infinity()};
  const auto buffer = to_device(*client_, device(), {Dtype::f32, {4}}, odd);
  ASSERT_TRUE(buffer.ok()) << buffer.error().message;
  float back[4] = {};
  ASSERT_TRUE(to_host(*buffer, back, sizeof back).ok());
  EXPECT_EQ(std::memcmp(back, odd, sizeof odd), 0);
}

// Writes to the data, against the rule, to see whether the plugin reads it in
// place; unaligned data was copied.
TEST_P(PjrtBuffer, AlignedDataIsReadInPlace) {
  alignas(kInPlaceAlignment) float data[17] = {};
  for (const bool aligned : {true, false}) {
    float* at = data + (aligned ? 0 : 1);
    at[0] = 1;
    const auto buffer = to_device(*client_, device(), {Dtype::f32, {16}}, at);
    ASSERT_TRUE(buffer.ok()) << buffer.error().message;
    at[0] = 2;
    EXPECT_EQ(floats(*buffer)[0], aligned ? 2 : 1);
  }
}

// A plugin may copy large data on another thread.
TEST_P(PjrtBuffer, DataMayGoWhenTheBufferHas) {
  constexpr int64_t kCount = 1 << 20;
  for (int i = 0; i < 20; ++i) {
    std::vector<float> data(kCount + 1, static_cast<float>(i));
    auto buffer =
        to_device(*client_, device(), {Dtype::f32, {kCount}}, data.data() + 1);
    ASSERT_TRUE(buffer.ok()) << buffer.error().message;
    if (i % 2) {
      Buffer moved = std::move(*buffer);
      std::vector<float> other(kCount + 1, -1.0F);
      auto next = to_device(*client_, device(), {Dtype::f32, {kCount}},
                            other.data() + 1);
      ASSERT_TRUE(next.ok());
      EXPECT_EQ(floats(moved)[kCount - 1], static_cast<float>(i));
      moved = std::move(*next);  // now `data` may be freed
      data = {};
      EXPECT_EQ(floats(moved)[kCount - 1], -1.0F);
    }
  }
}

TEST_P(PjrtBuffer, EachDeviceHasItsOwn) {
  ASSERT_GE(client_->devices().size(), 3u);
  const float data[2] = {3, 4};
  for (size_t i = 0; i < 3; ++i) {
    const auto buffer = to_device(*client_, device(i), {Dtype::f32, {2}}, data);
    ASSERT_TRUE(buffer.ok()) << buffer.error().message;
    EXPECT_EQ(buffer->device(), device(i).handle);
    EXPECT_EQ(floats(*buffer)[1], 4);
  }
}

TEST_P(PjrtBuffer, WhatCannotBeAnArrayIsRefused) {
  char byte = 0;
  const auto huge =
      to_device(*client_, device(), {Dtype::f32, {int64_t{1} << 62}}, &byte);
  EXPECT_EQ(huge.error().message,
            "[pjrt] an array's bytes must be in 0..2^63-1, found F32 "
            "[4611686018427387904]");
  EXPECT_FALSE(to_device(*client_, device(), {Dtype::f32, {-4}}, &byte).ok());
  const auto none = to_device(*client_, device(), {Dtype::f32, {4}}, nullptr);
  EXPECT_EQ(none.error().message,
            "[pjrt] an array must have data, found none for F32 [4] on cpu 0");

  const auto buffer = to_device(*client_, device(), {Dtype::i8, {1}}, &byte);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(to_host(*buffer, &byte, 2).error().message,
            "[pjrt] an array must have room for 1 bytes, found 2 for I8 [1]");
  EXPECT_EQ(to_host(*buffer, &byte, 0).error().message,
            "[pjrt] an array must have room for 1 bytes, found 0 for I8 [1]");
  EXPECT_EQ(to_host(*buffer, nullptr, 1).error().message,
            "[pjrt] an array must have room for 1 bytes, found 0 for I8 [1]");
}

// Pages that exist only when touched. In place they cost nothing; a copy would
// need more memory than the machine has.
TEST_P(PjrtBuffer, ACopyThatDoesNotFitIsALimit) {
#ifdef TESSERA_SANITIZED
  GTEST_SKIP() << "the sanitizer has the address space";
#endif
  constexpr int64_t kBytes = int64_t{1} << 42;
  void* pages = mmap(nullptr, kBytes, PROT_READ,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) GTEST_SKIP() << "no address space for it";
  const ArrayType type = {Dtype::u8, {kBytes - 1}};
  {
    const auto in_place = to_device(*client_, device(), type, pages);
    EXPECT_TRUE(in_place.ok()) << in_place.error().message;
  }
  const auto copy =
      to_device(*client_, device(), type, static_cast<const char*>(pages) + 1);
  ASSERT_FALSE(copy.ok());
  EXPECT_EQ(copy.error().kind, ErrorKind::limit);
  EXPECT_TRUE(copy.error().message.starts_with(
      "[pjrt] the copy of an array must fit in memory, found 4398046511103 "
      "bytes for "))
      << copy.error().message;
  munmap(pages, kBytes);
}

class FaultyBuffer : public ::testing::Test {
 protected:
  void SetUp() override {
    TESSERA_NEEDS_PLUGINS();
    const auto plugin = load_plugin(path_);
    ASSERT_TRUE(plugin.ok()) << plugin.error().message;
    const auto client = open_client(**plugin);
    ASSERT_TRUE(client.ok()) << client.error().message;
    client_ = *client;
    before_ = counted(path_, "fake_alive");
  }
  void TearDown() override {
    if (client_ == nullptr) return;  // skipped: nothing was loaded to count
    EXPECT_EQ(counted(path_, "fake_alive"), before_);
  }
  Result<Buffer> send(int64_t size) const {
    static const char kData[200] = "data";
    return to_device(*client_, client_->devices()[0], {Dtype::u8, {size}},
                     kData);
  }

  const std::string path_ = fake_plugin("faulty");
  const Client* client_ = nullptr;
  int before_ = 0;
};

TEST_F(FaultyBuffer, ErrorsOnTheWayThere) {
  const auto full = send(101);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().kind, ErrorKind::limit);
  EXPECT_EQ(full.error().message,
            "[pjrt] an array must reach its device, found RESOURCE_EXHAUSTED: "
            "'no room' for U8 [101] on device 7");
  const auto nothing = send(102);
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().message,
            "[pjrt] an array must reach its device, found nothing for U8 [102] "
            "on device 7");
}

// The plugin may read the data until its event completes.
TEST_F(FaultyBuffer, TheDataIsWaitedForWhenTheBufferGoes) {
  {
    auto a = send(4);
    ASSERT_TRUE(a.ok()) << a.error().message;
    const auto b = send(5);
    auto c = send(6);
    ASSERT_TRUE(b.ok() && c.ok());
    EXPECT_FALSE(send(102).ok());
    *a = std::move(*c);
    EXPECT_EQ(a->type().dims[0], 6);
  }
  EXPECT_EQ(counted(path_, "fake_unread"), 0);
}

TEST_F(FaultyBuffer, ErrorsOnTheWayBackComeWithTheEvent) {
  char back[103];
  const auto buffer = send(103);
  ASSERT_TRUE(buffer.ok()) << buffer.error().message;
  const auto lost = to_host(*buffer, back, sizeof back);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().message,
            "[pjrt] an array must come from its device, found INTERNAL: 'the "
            "link is down' for U8 [103]");
  const auto good = send(4);
  ASSERT_TRUE(good.ok());
  ASSERT_TRUE(to_host(*good, back, 4).ok());
  EXPECT_EQ(std::string(back, 4), "data");
}

}  // namespace
}  // namespace tessera::pjrt
