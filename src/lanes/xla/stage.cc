// lanes/xla/stage.cc: copies token by token, tile by tile.
#include "lanes/xla/stage.h"

#include <algorithm>
#include <cstring>

namespace tessera::xla {
namespace {

int64_t elements(const Type& type) {
  int64_t n = 1;
  for (const int64_t d : type.dims) n *= d;
  return n;
}

// Where a shard's own tokens lie in the arrays of a call, [batch, heads,
// tokens, dim].
struct OwnTiles {
  const std::vector<TileAt>& tiles;
  int64_t own = 0;       // the first of them
  int64_t capacity = 0;  // tiles that there is room for
  int64_t tokens = 0;    // of a tile
  int64_t first_head = 0, heads = 0;
  int64_t room_heads = 0;
};
// Calls f(element of the array, element of the part, tokens) for each run of
// tokens; both count rows of `dim` elements, the array's [batch, heads,
// length].
template <class F>
void for_each_run(const OwnTiles& at, int64_t length, F f) {
  for (int64_t i = 0; i < at.own; ++i) {
    const TileAt& tile = at.tiles[static_cast<size_t>(i)];
    const int64_t first = tile.tile * at.tokens;
    const int64_t n = std::min(at.tokens, length - first);
    for (int64_t h = 0; h < at.heads && n > 0; ++h) {
      f(tile.batch_row, at.first_head + h, first,
        (h * at.capacity + i) * at.tokens, n);
    }
  }
}

OwnTiles own_tiles(const ShardShape& shape, const Shard& s, bool rows,
                   const Dims& part) {
  const Exchange& e = rows ? shape.rows : shape.columns;
  return {rows ? s.rows : s.columns,
          rows ? s.own_rows : s.own_columns,
          e.own,
          e.tokens,
          rows ? s.first_head : s.first_kv_head,
          rows ? s.heads : s.kv_heads,
          part[1]};
}

}  // namespace

Part stage(const ShardShape& shape, const Shard& shard, const Argument& part,
           const CallArray& from) {
  const TensorView& t = from.view;
  const int64_t width = byte_width(t.dtype);
  Part out(static_cast<size_t>(elements(part.type) * width), 0);
  if (from.beyond != 0) {
    std::fill_n(reinterpret_cast<float*>(out.data()), elements(part.type),
                from.beyond);
  }
  const auto* const data = static_cast<const uint8_t*>(t.data);
  const int64_t bytes = t.dim * width;
  for_each_run(
      own_tiles(shape, shard, from.by_rows, part.type.dims), t.tokens,
      [&](int64_t b, int64_t h, int64_t token, int64_t row, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          const int64_t at = b * t.batch_stride + h * t.head_stride +
                             (token + i) * t.token_stride;
          std::memcpy(out.data() + (row + i) * bytes, data + at * width,
                      static_cast<size_t>(bytes));
        }
      });
  return out;
}

void unstage(const ShardShape& shape, const Shard& shard, const Argument& part,
             const Part& from, const CallArray& to) {
  const TensorView& t = to.view;
  const int64_t width = byte_width(t.dtype);
  auto* const data = static_cast<uint8_t*>(to.to);
  const int64_t bytes = t.dim * width;
  for_each_run(
      own_tiles(shape, shard, to.by_rows, part.type.dims), t.tokens,
      [&](int64_t b, int64_t h, int64_t token, int64_t row, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          const int64_t at = b * t.batch_stride + h * t.head_stride +
                             (token + i) * t.token_stride;
          std::memcpy(data + at * width, from.data() + (row + i) * bytes,
                      static_cast<size_t>(bytes));
        }
      });
}

}  // namespace tessera::xla
