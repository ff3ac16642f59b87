// kernels/blocks/blocks.h: turns rows of bits into worklists, forward and
// transposed.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/machine.h"

namespace tessera::kernels {

// One list of a block mask. Entries are the words of tessera::Entry.
struct BlockTask {
  // Rows of ceil(columns / 8) bytes, `stride` bytes apart, lowest bit first;
  // bits past the last column are 0.
  const uint8_t* bits = nullptr;
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  uint64_t* scratch = nullptr;  // block_scratch() words
  // Entry arrays of all lists, `tiles` entries each; this list starts at
  // `begin`. Elements past its last entry may be overwritten, up to `tiles`.
  uint32_t* forward = nullptr;
  uint32_t* transposed = nullptr;
  int64_t begin = 0;
  int64_t tiles = 0;
  uint32_t* row_end = nullptr;     // per row: the end of its entries
  uint32_t* column_end = nullptr;  // the same per column
};

int64_t block_scratch(int64_t rows);

struct BlockVariant {
  const char* name = "";
  Isa isa = Isa::portable;
  // Also needs AVX-512 VBMI2, VBMI, GFNI and VPOPCNTDQ, which `isa` does not
  // imply.
  bool vbmi2 = false;
  // Packs rows of bytes into rows of bits, ceil(columns / 64) words each.
  void (*pack)(const uint8_t* cells, int64_t rows, int64_t columns,
               uint64_t* words) = nullptr;
  int64_t (*count)(const uint8_t* bits, int64_t bytes) = nullptr;
  void (*make_lists)(const BlockTask&) = nullptr;
};

// All compiled-in variants, in ascending order of preference.
std::span<const BlockVariant> block_variants();
bool runs_here(const BlockVariant& variant);
// The best variant up to `isa` that this machine can run.
const BlockVariant& block_variant(Isa isa);

}  // namespace tessera::kernels
