// mask/parts_test.cc: shapes in closed form against a count of pairs.
#include "mask/parts.h"

#include <gtest/gtest.h>

#include <random>

namespace tessera::mask {
namespace {

TEST(Parts, ShapesAddUpAsIfCounted) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 engine(seed);
    auto draw = [&](int64_t least, int64_t most) {
      return least + static_cast<int64_t>(
                         engine() % static_cast<uint64_t>(most - least + 1));
    };
    const int64_t kv_len = draw(1, 120);
    const int64_t block = draw(1, 40);
    const int64_t queries = draw(1, 40);
    const int64_t offset = draw(-50, 50);
    const int64_t columns = (kv_len + block - 1) / block;
    std::vector<int64_t> counted(static_cast<size_t>(columns), 0);

    // Shapes are disjoint in queries, so no pair counts twice; some are undone.
    Parts parts(kv_len, block);
    ASSERT_EQ(parts.columns(), columns);
    parts.clear();
    for (int64_t q = 0; q < queries;) {
      const int64_t q_end = std::min(queries, q + draw(1, 20));
      const int64_t k0 = draw(0, kv_len - 1);
      const int64_t k1 = draw(k0 + 1, kv_len);
      const int64_t from =
          draw(0, 3) == 0 ? -(int64_t{1} << 40) : draw(-90, 90);
      const int64_t to =
          draw(0, 3) == 0 ? int64_t{1} << 40 : from + draw(0, 100);
      const bool rectangle = draw(0, 2) == 0;
      const bool take_back = draw(0, 4) == 0;
      for (const int64_t times : {1, -1}) {
        if (times < 0 && !take_back) continue;
        parts.set_times(times);
        if (rectangle) {
          parts.add_rectangle({k0, k1}, q_end - q);
        } else {
          parts.add_trapezoid({q + offset, q_end + offset}, {k0, k1}, from, to);
        }
        for (int64_t i = q; i < q_end; ++i) {
          for (int64_t k = k0; k < k1; ++k) {
            const int64_t d = k - (i + offset);
            if (rectangle || (from <= d && d < to)) {
              counted[static_cast<size_t>(k / block)] += times;
            }
          }
        }
      }
      parts.set_times(1);
      q = q_end;
    }

    std::vector<Span> spans;
    parts.finish(queries, spans);
    std::vector<int64_t> found(static_cast<size_t>(columns), 0);
    int64_t before = 0;
    for (const Span& s : spans) {
      ASSERT_GE(s.begin, before);
      ASSERT_LT(s.begin, s.end);
      ASSERT_LE(s.end, columns);
      before = s.end;
      for (int64_t c = s.begin; c < s.end; ++c) {
        const int64_t real = queries * std::min(block, kv_len - c * block);
        ASSERT_EQ(s.tile_class,
                  s.pairs == real ? TileClass::full : TileClass::partial);
        ASSERT_GT(s.pairs, 0);
        found[static_cast<size_t>(c)] = s.pairs;
      }
    }
    ASSERT_EQ(found, counted);
  }
}

}  // namespace
}  // namespace tessera::mask
