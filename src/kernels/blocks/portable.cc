// kernels/blocks/portable.cc: the block mask kernels for any machine.
#include "kernels/blocks/blocks_kernel.h"

namespace tessera::kernels {
namespace {

struct PortableBlocks {
  using First = uint32_t;
  static First begin() { return first_entry(0); }
  static First next(First first) { return first + 4 * kSide; }

  static uint32_t* put(uint64_t word, First first, uint32_t* to) {
    for (; word != 0; word &= word - 1) {
      *to++ = first + 4 * static_cast<uint32_t>(__builtin_ctzll(word));
    }
    return to;
  }
  static uint64_t pack(const uint8_t* cells) {
    uint64_t word = 0;
    for (int i = 0; i < kSide; ++i) word |= uint64_t{cells[i] != 0} << i;
    return word;
  }
  static void turn(uint64_t* words) { turn_square(words); }
  static int64_t count(const uint8_t* bits, int64_t bytes) {
    return count_blocks(bits, bytes);
  }
};

}  // namespace

BLOCK_LISTS(portable, PortableBlocks)

}  // namespace tessera::kernels
