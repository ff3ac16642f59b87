// lanes/mosaic/vector_memory.cc: see vector_memory.h.
#include "lanes/mosaic/vector_memory.h"

#include <algorithm>

#include "base/integers.h"
#include "lanes/mosaic/backward.h"
#include "lanes/mosaic/forward.h"
#include "lanes/mosaic/parts.h"
#include "lanes/mosaic/telemetry.h"

namespace tessera::mosaic {
namespace {

// Most pairs of a query and a key in a pass, over all its heads.
constexpr int64_t kMaxPassPairs = int64_t{1} << 21;

// The most heads that a pass may have, memory aside: so many that the branches
// of its code are no longer than those of large tiles.
int64_t most_heads_of(const KernelShape& s, bool backward) {
  static_assert(kMaxBackwardHeadsPerPass <= kSublanes);
  // One head's products of full precision fill the matrix unit; they compile
  // slowly.
  if (s.dtype == Dtype::f32) return 1;
  const int64_t pairs = s.block_q * s.block_kv * s.tiles_per_pass;
  return std::min(backward ? kMaxBackwardHeadsPerPass : kMaxHeadsPerPass,
                  kMaxPassPairs / pairs);
}

int64_t heads_together_of(const KernelShape& s, int64_t most) {
  return heads_together(s.heads_of_list(), s.heads / s.kv_heads, most);
}

// Vector memory that heads together may take. With chunks, whose size is open,
// four fifths of the room: the compiler's own share grows with the tile.
int64_t room_together(const KernelShape& s, bool backward) {
  const int64_t room = vector_room(s.core_bytes, backward);
  return s.in_chunks() ? room / 5 * 4 : room;
}

// Heads of a pass, as many as vector memory holds.
int64_t heads_per_pass_of(KernelShape s, bool backward) {
  for (int64_t most = most_heads_of(s, backward); most > 1;
       most = s.heads_per_pass - 1) {
    s.heads_per_pass = heads_together_of(s, most);
    if (vector_bytes(arguments_of(s, backward)) <= room_together(s, backward)) {
      return s.heads_per_pass;
    }
  }
  return 1;
}

// Queries that are enough for a chunk: what is copied once a chunk is then
// little beside its tiles.
constexpr int64_t kChunkQueries = 16'384;

// Sets as many rows a chunk as there is room for, and as many heads as leave
// room for kChunkQueries; one row if none fits.
void take_chunks(KernelShape& s) {
  const auto bytes = [&](int64_t rows) {
    s.chunk_rows = rows;
    return vector_bytes(arguments_of(s, true));
  };
  s.chunk_rows = 1;
  const int64_t room = room_together(s, true);
  for (int64_t most = std::max<int64_t>(1, most_heads_of(s, true)); most > 0;
       most = s.heads_per_pass - 1) {
    s.heads_per_pass = heads_together_of(s, most);
    const int64_t one = bytes(1);
    const int64_t more = std::max<int64_t>(0, room - one) / (bytes(2) - one);
    s.chunk_rows = std::min(1 + more, s.rows());
    if (s.chunk_rows * s.block_q >= std::min(kChunkQueries, s.q_len)) return;
  }
}

}  // namespace

std::vector<Argument> arguments_of(const KernelShape& s, bool backward) {
  if (s.telemetry) return telemetry_arguments(s);
  return backward ? backward_arguments(s) : forward_arguments(s);
}

bool fits(const KernelShape& s, bool backward) {
  return vector_bytes(arguments_of(s, backward)) <=
         vector_room(s.core_bytes, backward);
}

void take_heads(KernelShape& s, bool backward, bool may_chunk) {
  s.heads_per_pass = heads_per_pass_of(s, backward);
  if (!may_chunk || s.in_chunks()) return;
  const bool is_whole = fits(s, backward);
  const int64_t most = heads_together_of(s, most_heads_of(s, backward));
  if (is_whole && s.heads_per_pass >= most) return;
  KernelShape chunked = s;
  take_chunks(chunked);
  if (!is_whole || chunked.heads_per_pass > s.heads_per_pass) s = chunked;
}

int64_t heads_together(int64_t heads, int64_t group, int64_t most) {
  for (int64_t n = std::min(heads, most); n > 1; --n) {
    if (heads % n == 0 && (group % n == 0 || n % group == 0)) return n;
  }
  return 1;
}

int64_t vector_room(int64_t core_bytes, bool backward) {
  const VectorRooms rooms = vector_rooms(core_bytes);
  return backward ? rooms.backward : rooms.forward;
}

int64_t least_vector_bytes(const RequestFeatures& f) {
  const bool backward = f.call.backward;
  KernelShape s;
  s.heads = f.shape.heads;
  s.kv_heads = f.shape.kv_heads;
  s.head_dim = f.shape.head_dim;
  s.v_head_dim = f.shape.v_head_dim;
  s.dtype = f.call.dtype;
  s.q_len = round_up(bucket(f.q_len), f.tile.q);
  s.kv_len = round_up(bucket(f.kv_len), f.tile.kv);
  s.block_q = f.tile.q;
  s.block_kv = f.tile.kv;
  s.tiles_per_pass = s.fetch_ahead = 1;
  s.plan_heads = f.plan_heads;
  s.any_numbers = f.call.numbers == Numbers::any;
  int64_t least = INT64_MAX;
  // Tries all head counts: backward, passes of whole groups of heads keep no
  // sums of all keys.
  for (int64_t most = std::max<int64_t>(1, most_heads_of(s, backward));
       most > 0; most = s.heads_per_pass - 1) {
    s.heads_per_pass = heads_together_of(s, most);
    // Scratch depends on bitmaps, and on chunks of queries.
    for (const int64_t bitmaps : {0, 1}) {
      s.bitmaps = bitmaps;
      for (s.chunk_rows = 0; s.chunk_rows <= (backward ? 1 : 0);
           ++s.chunk_rows) {
        least = std::min(least, vector_bytes(arguments_of(s, backward)));
      }
    }
  }
  return least;
}

}  // namespace tessera::mosaic
