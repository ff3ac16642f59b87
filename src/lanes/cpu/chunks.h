// lanes/cpu/chunks.h: what of a plan one task of a kernel runs. A kernel's
// blocks of queries and keys are its own; plan tiles say where there is work at
// all and where every pair is legal, the spans say the rest, pair by pair.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backward/backward.h"
#include "kernels/forward/forward.h"
#include "lanes/cpu/work.h"

namespace tessera::cpu {

// A column of tiles and whether all its tiles, one a row, are full.
struct ActiveColumn {
  int64_t column = 0;
  bool full = false;
};

// The active columns of rows [begin, end) of a list, ascending.
void active_columns(const Worklist& worklist, int64_t list, int64_t begin,
                    int64_t end, std::vector<ActiveColumn>& out);

// The chunks of keys of one block of queries.
class QueryBlock {
 public:
  void read(const CpuWork::State& work, int64_t list, int64_t q_begin,
            int64_t q_end);
  std::span<const kernels::KeyChunk> chunks() const { return chunks_; }
  const uint8_t* live() const { return live_.data(); }  // per query

 private:
  void add_partial(const CpuWork::State& work, int64_t list, int64_t q_begin,
                   int64_t q_end, int64_t k_begin, int64_t k_end);

  std::vector<ActiveColumn> columns_;
  std::vector<kernels::KeyChunk> chunks_;
  // Of the chunks with layers, in their order.
  std::vector<int32_t> first_, last_;
  std::vector<uint8_t> key_live_;
  std::vector<uint8_t> live_;
};

// The chunks of queries of one block of keys.
class KeyBlock {
 public:
  // A chunk of queries by its number; all pairs of a full one are legal.
  struct Place {
    uint32_t chunk : 31;
    uint32_t full : 1;
  };
  void read(const CpuWork::State& work, int64_t list, int64_t k_begin,
            int64_t k_end, std::span<const Place> places);
  // One for each place, with 0 rows where no pair is legal.
  // Rows, layers, first and last are set.
  std::span<const kernels::BackwardChunk> chunks() const { return chunks_; }
  // Per key, null where each has a query.
  const uint8_t* live() const { return all_live_ ? nullptr : live_.data(); }

 private:
  std::vector<kernels::BackwardChunk> chunks_;
  std::vector<int32_t> first_, last_;
  std::vector<uint8_t> live_;
  bool all_live_ = false;
};

}  // namespace tessera::cpu
