// Numbers of every width and range against a check of each number.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "base/fail.h"
#include "data/arrow_batch.h"
#include "tests/random_case.h"

namespace tessera::data {
namespace {

constexpr IntegerRange kRanges[] = {
    {INT32_MIN, INT32_MAX}, {0, INT32_MAX}, {0, 1}, {-3, 100}};

template <class T>
bool is_within(T value, IntegerRange range) {
  if constexpr (sizeof(T) == 8 && std::is_unsigned_v<T>) {
    if (value > uint64_t{INT64_MAX}) return false;
  }
  return static_cast<int64_t>(value) >= range.least &&
         static_cast<int64_t>(value) <= range.most;
}

// Values mostly within the range, in a buffer of any alignment.
template <class T>
void check_width(std::mt19937_64& random) {
  const IntegerRange range = kRanges[random() % std::size(kRanges)];
  const size_t count = random() % 70, skipped = random() % 5;
  const bool bad = random() % 2 == 0;
  std::vector<T> values(skipped + count);
  for (T& value : values) {
    do {
      const uint64_t drawn = random() >> (random() % 64);
      value = static_cast<T>(random() % 2 == 0 ? drawn : ~drawn);
      if (range.most == 1) value = static_cast<T>(drawn % 2);
    } while (!is_within(value, range));
  }
  if (bad && count > 0) {
    constexpr T kMax = std::numeric_limits<T>::max();
    constexpr T kMin = std::numeric_limits<T>::min();
    const T drawn = static_cast<T>(random());
    const T some[] = {kMax, kMin, drawn, static_cast<T>(kMax / 2 + 1), 2};
    values[skipped + random() % count] = some[random() % 5];
  }
  std::vector<char> memory(sizeof(T) * values.size() + 8);
  char* const at = memory.data() + random() % 8;
  if (!values.empty())
    std::memcpy(at, values.data(), sizeof(T) * values.size());

  ArrowType type;
  type.kind = ArrowKind::integer;
  type.bytes = sizeof(T);
  type.is_signed = std::is_signed_v<T>;
  const void* buffers[2] = {nullptr, at};
  ArrowArray array = {};
  array.length = static_cast<int64_t>(values.size());
  array.offset = static_cast<int64_t>(skipped / 2);
  array.n_buffers = 2;
  array.buffers = buffers;
  const ArrowItems items{&type, &array,
                         static_cast<int64_t>(skipped - skipped / 2),
                         static_cast<int64_t>(count)};

  std::vector<int32_t> want = {41, 42}, got = want;
  std::string says;
  for (size_t i = 0; i < count && says.empty(); ++i) {
    const T value = values[skipped + i];
    if (is_within(value, range)) {
      want.push_back(static_cast<int32_t>(value));
    } else {
      says = fmt::format(
          "[data] element {} of ids of row 3 of batch 2 of x must be an "
          "integer of {} to {}, found the integer {} for it",
          i, range.least, range.most, +value);
    }
  }
  const auto added = add_integers(items, range, "ids", {3, 2, -1, "x"}, got);
  EXPECT_EQ(added ? "" : added.error().message, says);
  if (added) {
    EXPECT_EQ(got, want);
  }
}

TEST(ArrowValues, NumbersOfAnyWidthAreThoseOfTheRange) {
  const uint64_t first = testing::first_seed(1);
  for (int64_t i = 0; i < testing::case_count(3000); ++i) {
    std::mt19937_64 random(first + static_cast<uint64_t>(i));
    check_width<int8_t>(random);
    check_width<uint8_t>(random);
    check_width<int16_t>(random);
    check_width<uint16_t>(random);
    check_width<int32_t>(random);
    check_width<uint32_t>(random);
    check_width<int64_t>(random);
    check_width<uint64_t>(random);
    ASSERT_FALSE(HasFailure()) << "seed " << first + static_cast<uint64_t>(i);
  }
}

// Nulls take no bytes: a small file may claim a list of any number of them.
TEST(ArrowValues, NoRoomIsMadeForNumbersThatAreNotThere) {
  ArrowType nulls;
  nulls.kind = ArrowKind::nulls;
  ArrowArray array = {};
  array.length = INT64_MAX;
  const auto said = [&](int64_t count, std::vector<int32_t>& to) {
    const auto added = add_integers({&nulls, &array, 0, count}, {0, INT32_MAX},
                                    "ids", {3, 2, -1, "x"}, to);
    return added ? "" : added.error().message;
  };
  std::vector<int32_t> got;
  EXPECT_EQ(said(kMaxDocumentTokens, got),
            "[data] element 0 of ids of row 3 of batch 2 of x must be an "
            "integer of 0 to 2147483647, found null for it");
  EXPECT_EQ(said(kMaxDocumentTokens + 1, got),
            "[data] ids must have at most 268435456 elements, found 268435457 "
            "for row 3 of batch 2 of x");
  EXPECT_EQ(got.capacity(), 0U);
}

}  // namespace
}  // namespace tessera::data
