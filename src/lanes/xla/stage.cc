// lanes/xla/stage.cc: copies token by token, tile by tile.
#include "lanes/xla/stage.h"

#include <algorithm>
#include <cstring>

namespace tessera::xla {
namespace {

// Calls f(byte of the call's array, byte of the part, bytes) for each token of
// each head that the shard owns. The part is [1, heads, own tokens, ...].
template <class F>
void for_each_token(const ShardFrame& frame, const Shard& shard,
                    const CallArray& array, F f) {
  const bool rows = array.by_rows;
  const Exchange& e = rows ? frame.rows : frame.columns;
  const std::vector<TileAt>& tiles = rows ? shard.rows : shard.columns;
  const int64_t own = rows ? shard.own_rows : shard.own_columns;
  const int64_t first_head = rows ? shard.first_head : shard.first_kv_head;
  const int64_t heads = rows ? shard.heads : shard.kv_heads;
  const TensorView& t = array.view;
  const int64_t width = byte_width(t.dtype);
  for (int64_t i = 0; i < own; ++i) {
    const TileAt& tile = tiles[static_cast<size_t>(i)];
    const int64_t first = tile.tile * e.tokens;
    const int64_t tokens = std::min(e.tokens, t.tokens - first);
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t n = 0; n < tokens; ++n) {
        const int64_t at = tile.batch_row * t.batch_stride +
                           (first_head + h) * t.head_stride +
                           (first + n) * t.token_stride;
        const int64_t row = (h * e.own + i) * e.tokens + n;
        f(at * width, row * t.dim * width, static_cast<size_t>(t.dim * width));
      }
    }
  }
}

}  // namespace

Part stage(const ShardFrame& frame, const Shard& shard, const Type& part,
           const CallArray& from) {
  const int64_t n = part.elements();
  Part out(static_cast<size_t>(n * byte_width(from.view.dtype)), 0);
  if (from.beyond != 0) {
    std::fill_n(reinterpret_cast<float*>(out.data()), n, from.beyond);
  }
  const auto* const data = static_cast<const uint8_t*>(from.view.data);
  for_each_token(frame, shard, from,
                 [&](int64_t at, int64_t row, size_t bytes) {
                   std::memcpy(out.data() + row, data + at, bytes);
                 });
  return out;
}

void unstage(const ShardFrame& frame, const Shard& shard, const Part& from,
             const CallArray& to) {
  auto* const data = static_cast<uint8_t*>(to.to);
  for_each_token(frame, shard, to, [&](int64_t at, int64_t row, size_t bytes) {
    std::memcpy(data + at, from.data() + row, bytes);
  });
}

}  // namespace tessera::xla
