// route/window.h: the routing tiles that each query tile scores, without future
// ones. Kernels do not check this again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::routing {

// A routing tile is `per_tile` adjacent compression blocks.
struct RoutingWindow {
  int64_t per_tile = 1;
  int64_t tiles = 0;  // routing tiles over all keys
  // Per query tile: routing tiles [0, scored) are scored.
  std::vector<int32_t> scored;

  // Compression blocks [0, end) may be scored.
  int64_t end(int64_t query_tile) const {
    return scored[static_cast<size_t>(query_tile)] * per_tile;
  }
};

struct WindowSizes {
  int64_t q_len = 0;
  int64_t kv_len = 0;
  int64_t query_tile = 256;
  int64_t kv_tile = 1024;
  int64_t stride = 64;
};

// A routing tile is scored only if tile_start * stride <= the position of the
// last query of the query tile. If not `windowed`, every tile is scored.
RoutingWindow causal_window(const WindowSizes& sizes, int64_t q_offset,
                            bool windowed);

}  // namespace tessera::routing
