// bench/pack/open_rows.h: the obvious simple packer, as a peer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::bench {

// Puts each document into the fullest of `open` rows that has room. If none
// has, the fullest row is closed and a new one opened. A document longer than a
// row is first cut into whole rows. Writes the row of each document (of its
// last part) and returns the number of rows.
int64_t pack_open_rows(std::span<const int32_t> lengths, int32_t tokens,
                       int32_t open, std::vector<int64_t>& row_of);

}  // namespace tessera::bench
