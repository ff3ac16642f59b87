// kernels/blocks/blocks_kernel.h: the loops, for any vector type.
//
// A word holds 64 blocks of a row and expands to worklist entries. The words of
// 64 consecutive rows form a square of bits; its transpose is 64 rows of the
// transposed list, which expand the same way.
#pragma once

#include <cstdint>

#include "kernels/blocks/blocks.h"

namespace tessera::kernels {
namespace {

inline constexpr int64_t kSide = 64;

inline int64_t words_of(int64_t bits) { return (bits + kSide - 1) / kSide; }

// The word at `from`, of which only `bytes` bytes exist; the others count as 0.
inline uint64_t load_word(const uint8_t* from, int64_t bytes) {
  uint64_t word = 0;
  if (bytes >= 8) {
    __builtin_memcpy(&word, from, 8);
    return word;
  }
  for (int64_t i = 0; i < bytes; ++i) word |= uint64_t{from[i]} << (8 * i);
  return word;
}

// The entry of block 64 * w, with class full.
inline uint32_t first_entry(int64_t w) {
  return static_cast<uint32_t>(w * kSide) << 2 | 2;
}

// Expands the words of one row, from word 0 on, to entries.
template <class V>
struct Line {
  int64_t word = 0;
  typename V::First first = V::begin();  // entry of the word's first block

  // Appends the entries of one word. V::put may write kSide entries whatever
  // their count, so near `end` a scalar loop writes them.
  uint32_t* put(uint64_t bits, uint32_t* to, const uint32_t* end) {
    if (end - to >= kSide) {
      to = V::put(bits, first, to);
    } else {
      const uint32_t entry = first_entry(word);
      for (; bits != 0; bits &= bits - 1) {
        *to++ = entry + 4 * static_cast<uint32_t>(__builtin_ctzll(bits));
      }
    }
    ++word;
    first = V::next(first);
    return to;
  }
};

template <class V>
void make_forward(const BlockTask& t) {
  const int64_t words = words_of(t.columns);
  const int64_t bytes = (t.columns + 7) / 8;
  uint32_t* to = t.forward + t.begin;
  const uint32_t* const end = t.forward + t.tiles;
  for (int64_t r = 0; r < t.rows; ++r) {
    const uint8_t* const row = t.bits + r * t.stride;
    Line<V> line;
    for (int64_t w = 0; w < words; ++w) {
      to = line.put(load_word(row + 8 * w, bytes - 8 * w), to, end);
    }
    t.row_end[r] = static_cast<uint32_t>(to - t.forward);
  }
}

template <class V>
void make_transposed(const BlockTask& t) {
  const int64_t squares = words_of(t.rows);
  const int64_t bytes = (t.columns + 7) / 8;
  uint64_t* const words = t.scratch;
  uint32_t* to = t.transposed + t.begin;
  const uint32_t* const end = t.transposed + t.tiles;
  for (int64_t first = 0; first < t.columns; first += kSide) {
    const int64_t at = first / 8;
    for (int64_t r = 0; r < t.rows; ++r) {
      words[r] = load_word(t.bits + r * t.stride + at, bytes - at);
    }
    for (int64_t r = t.rows; r < squares * kSide; ++r) words[r] = 0;
    for (int64_t s = 0; s < squares; ++s) V::turn(words + s * kSide);
    for (int64_t c = 0; c < kSide && first + c < t.columns; ++c) {
      Line<V> line;
      for (int64_t s = 0; s < squares; ++s) {
        to = line.put(words[s * kSide + c], to, end);
      }
      t.column_end[first + c] = static_cast<uint32_t>(to - t.transposed);
    }
  }
}

template <class V>
void make_block_lists(const BlockTask& t) {
  make_forward<V>(t);
  make_transposed<V>(t);
}

template <class V>
void pack_blocks(const uint8_t* cells, int64_t rows, int64_t columns,
                 uint64_t* words) {
  for (int64_t r = 0; r < rows; ++r) {
    int64_t c = 0;
    for (; c + kSide <= columns; c += kSide) *words++ = V::pack(cells + c);
    if (c < columns) {
      uint64_t word = 0;
      for (int64_t i = 0; c + i < columns; ++i) {
        word |= uint64_t{cells[c + i] != 0} << i;
      }
      *words++ = word;
    }
    cells += columns;
  }
}

inline int64_t count_blocks(const uint8_t* bits, int64_t bytes) {
  int64_t count = 0;
  for (int64_t at = 0; at < bytes; at += 8) {
    count += __builtin_popcountll(load_word(bits + at, bytes - at));
  }
  return count;
}

// Transposes 64 x 64 bits: the two off-diagonal squares of half the side swap
// places, then the same inside each of the four squares.
inline void turn_square(uint64_t* words) {
  uint64_t low = ~uint64_t{0};  // the lower half of each square's columns
  for (int64_t half = kSide / 2; half > 0; half /= 2) {
    low ^= low << half;
    for (int64_t at = 0; at < kSide; at += 2 * half) {
      for (int64_t i = at; i < at + half; ++i) {
        const uint64_t moved = (words[i] >> half ^ words[i + half]) & low;
        words[i + half] ^= moved;
        words[i] ^= moved << half;
      }
    }
  }
}

}  // namespace

#define BLOCK_LISTS(name, Vectors)                                             \
  void pack_blocks_##name(const uint8_t* cells, int64_t rows, int64_t columns, \
                          uint64_t* words) {                                   \
    pack_blocks<Vectors>(cells, rows, columns, words);                         \
  }                                                                            \
  int64_t count_blocks_##name(const uint8_t* bits, int64_t n) {                \
    return Vectors::count(bits, n);                                            \
  }                                                                            \
  void make_block_lists_##name(const BlockTask& task) {                        \
    make_block_lists<Vectors>(task);                                           \
  }

}  // namespace tessera::kernels
