// kernels/blocks/blocks.h: rows of bits become worklists, forward and
// transposed.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/machine.h"

namespace tessera::kernels {

// One list. Words of entries are those of tessera::Entry.
struct BlockTask {
  // Rows of ceil(columns / 8) bytes, `stride` bytes apart, lowest bit first;
  // those behind the columns are 0.
  const uint8_t* bits = nullptr;
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  uint64_t* scratch = nullptr;  // block_scratch() words
  // Entries of all lists, `tiles` each; this list's begin at `begin`. What lies
  // behind them may be written, up to `tiles`.
  uint32_t* forward = nullptr;
  uint32_t* transposed = nullptr;
  int64_t begin = 0;
  int64_t tiles = 0;
  uint32_t* row_end = nullptr;     // of each row, where its entries end
  uint32_t* column_end = nullptr;  // of each column
};

int64_t block_scratch(int64_t rows);

struct BlockVariant {
  const char* name = "";
  Isa isa = Isa::portable;
  // And AVX-512 VBMI2, with VBMI, GFNI and VPOPCNTDQ, which not every machine
  // has.
  bool vbmi2 = false;
  // Rows of bytes as rows of bits, ceil(columns / 64) words each.
  void (*pack)(const uint8_t* cells, int64_t rows, int64_t columns,
               uint64_t* words) = nullptr;
  int64_t (*count)(const uint8_t* bits, int64_t bytes) = nullptr;
  void (*make_lists)(const BlockTask&) = nullptr;
};

// All that are compiled in, in ascending order of preference.
std::span<const BlockVariant> block_variants();
bool runs_here(const BlockVariant& variant);
// The best for an ISA that this machine has.
const BlockVariant& block_variant(Isa isa);

}  // namespace tessera::kernels
