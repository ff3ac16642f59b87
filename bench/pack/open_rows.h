// bench/pack/open_rows.h: the packer that anyone writes first, as a peer.
#pragma once

#include <cstdint>
#include <span>

namespace tessera::bench {

// A document goes to the fullest of `open` rows that it fits; where it fits
// none, the fullest of them is closed for it. Of one beyond a row whole rows
// are cut off first.
struct OpenRows {
  int64_t rows = 0;
  double documents_per_second = 0;  // of the fastest round
};
OpenRows pack_open_rows(std::span<const int32_t> lengths, int64_t tokens,
                        int64_t open, int64_t rounds);

}  // namespace tessera::bench
