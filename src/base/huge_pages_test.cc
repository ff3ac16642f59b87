// base/huge_pages_test.cc
#include "base/huge_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>

namespace tessera {
namespace {

// Wherever the range begins, its contents and those of its neighbours stay.
TEST(HugePages, AreAHintAlone) {
  constexpr size_t kBytes = size_t{9} << 20;
  std::vector<uint8_t> all(kBytes);
  std::iota(all.begin(), all.end(), uint8_t{0});
  for (const size_t begin : {0, 1, 4095, 4096, 4097}) {
    for (const size_t bytes :
         {size_t{0}, size_t{1}, size_t{4095}, size_t{4} << 20,
          (size_t{4} << 20) + 1, kBytes - begin}) {
      prefer_huge_pages(all.data() + begin, bytes);
    }
  }
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i], static_cast<uint8_t>(i)) << i;
  }
}

TEST(HugePages, ReserveIsThatOfAVector) {
  std::vector<int32_t> v;
  reserve_huge(v, 0);
  EXPECT_EQ(v.capacity(), 0U);
  reserve_huge(v, size_t{3} << 20);
  const int32_t* const at = v.data();
  v.resize(size_t{3} << 20, 7);
  reserve_huge(v, 10);
  EXPECT_EQ(v.data(), at);
  EXPECT_EQ(v.size(), size_t{3} << 20);
  EXPECT_EQ(v.front() + v.back(), 14);
}

}  // namespace
}  // namespace tessera
