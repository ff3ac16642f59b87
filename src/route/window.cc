// route/window.cc: the causal window of routing tiles.
#include "route/window.h"

#include <algorithm>

#include "base/integers.h"

namespace tessera::routing {

RoutingWindow causal_window(const WindowSizes& s, int64_t q_offset,
                            bool windowed) {
  RoutingWindow out;
  out.per_tile = s.kv_tile / s.stride;
  out.tiles = ceil_div(s.kv_len, s.kv_tile);
  for (int64_t begin = 0; begin < s.q_len; begin += s.query_tile) {
    const int64_t last = std::min(begin + s.query_tile, s.q_len) - 1 + q_offset;
    const int64_t past = last < 0 ? 0 : last / s.kv_tile + 1;
    out.scored.push_back(
        static_cast<int32_t>(windowed ? std::min(past, out.tiles) : out.tiles));
  }
  return out;
}

}  // namespace tessera::routing
