// shard/early.h: what a shard can compute while tiles travel.
#pragma once

#include <cstdint>

namespace tessera::shard {

// Tiles that a shard owns, which stand first.
struct OwnTiles {
  int64_t rows = 0, columns = 0;
};
// Whether a row's queries and all its keys are among them. `last_column` is the
// highest that it names; of a row without a key -1.
inline bool is_early(const OwnTiles& own, int64_t row, int64_t last_column) {
  return row < own.rows && last_column < own.columns;
}

}  // namespace tessera::shard
