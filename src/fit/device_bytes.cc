// fit/device_bytes.cc: bytes of an array with the padding of its tiles.
//
// Arguments and results of a TPU program are stored in tiles of [8, 128]
// elements over two dimensions; the compiler picks the two that pad least. If
// the dimension of the 8 is shorter, the tile has the next power of two of
// rows, but 16-bit numbers go in pairs of rows. An array of one dimension has
// tiles of at least 512 bytes and at most 1024 elements. libtpu 0.0.51 agreed
// for every target and every shape that was tried (a test compiles some).
#include <algorithm>
#include <bit>
#include <limits>

#include "base/integers.h"
#include "tessera/fit.h"

namespace tessera {
namespace {

constexpr int64_t kLanes = 128;
constexpr int64_t kSublanes = 8;
constexpr int64_t kMaxInLine = 1024;
constexpr int64_t kMinBytes = 512;

int64_t power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
}

}  // namespace

int64_t device_bytes(Dtype dtype, std::span<const int64_t> dims) {
  const int64_t width = byte_width(dtype);
  if (dims.size() < 2) {
    const int64_t n = dims.empty() ? 1 : dims[0];
    const int64_t least = kMinBytes / width;
    return round_up(n, std::clamp(power_of_two(n), least, kMaxInLine)) * width;
  }
  int64_t best = std::numeric_limits<int64_t>::max();
  for (size_t lane = 0; lane < dims.size(); ++lane) {
    for (size_t sublane = 0; sublane < dims.size(); ++sublane) {
      if (lane == sublane) continue;
      const int64_t pairs = std::max<int64_t>(1, 4 / width);
      const int64_t rows =
          std::clamp(power_of_two(dims[sublane]), pairs, kSublanes);
      int64_t bytes =
          width * round_up(dims[lane], kLanes) * round_up(dims[sublane], rows);
      for (size_t i = 0; i < dims.size(); ++i) {
        if (i != lane && i != sublane) bytes *= dims[i];
      }
      best = std::min(best, bytes);
    }
  }
  return best;
}

}  // namespace tessera
