// The causal window against its definition, tile by tile.
#include "route/window.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tessera::routing {
namespace {

TEST(RouteWindow, ATileIsScoredIfItStartsBeforeTheLastQueryEnds) {
  for (const int64_t offset :
       {int64_t{-40}, int64_t{-3}, int64_t{0}, int64_t{17}, int64_t{400}}) {
    for (const int64_t query_tile : {1, 7, 16}) {
      const WindowSizes s{50, 90, query_tile, 24, 4};
      const RoutingWindow w = causal_window(s, offset, true);
      const RoutingWindow all = causal_window(s, offset, false);
      ASSERT_EQ(w.per_tile, 6);
      ASSERT_EQ(w.tiles, 4);
      for (size_t t = 0; t < w.scored.size(); ++t) {
        const int64_t last =
            std::min<int64_t>(50, (static_cast<int64_t>(t) + 1) * query_tile) -
            1 + offset;
        for (int64_t j = 0; j < w.tiles; ++j) {
          const int64_t tile_start = j * w.per_tile;  // in compression blocks
          EXPECT_EQ(j < w.scored[t], tile_start * s.stride <= last)
              << "offset " << offset << ", tile " << t << ", routing tile "
              << j;
        }
        EXPECT_EQ(all.scored[t], 4);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::routing
