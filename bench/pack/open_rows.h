// bench/pack/open_rows.h: the packer that anyone writes first, as a peer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::bench {

// A document goes to the fullest of `open` rows that it fits; where it fits
// none, the fullest of them is closed for it. Of one beyond a row whole rows
// are cut off first. Writes each document's row (its last part's); says how
// many rows there are.
int64_t pack_open_rows(std::span<const int32_t> lengths, int32_t tokens,
                       int32_t open, std::vector<int64_t>& row_of);

}  // namespace tessera::bench
