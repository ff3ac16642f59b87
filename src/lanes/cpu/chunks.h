// lanes/cpu/chunks.h: the part of a plan that one task of a kernel runs.
// Kernels have block sizes of their own: plan tiles say where there is work and
// where every pair is legal, and key spans say the rest, pair by pair.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backward/backward.h"
#include "kernels/forward/forward.h"
#include "lanes/cpu/work.h"

namespace tessera::cpu {

// A column with an active tile. `full`: its tile is full in every row read.
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
  // Bounds and live flags of the chunks with layers, in order.
  std::vector<int32_t> first_, last_;
  std::vector<uint8_t> key_live_;
  std::vector<uint8_t> live_;
};

// The chunks of queries of one block of keys.
class KeyBlock {
 public:
  // A chunk of queries, by number. `full`: all its pairs are legal.
  struct Place {
    uint32_t chunk : 31;
    uint32_t full : 1;
  };
  void read(const CpuWork::State& work, int64_t list, int64_t k_begin,
            int64_t k_end, std::span<const Place> places);
  // One chunk for each place, with 0 rows where no pair is legal. Only rows,
  // layers, first and last are set.
  std::span<const kernels::BackwardChunk> chunks() const { return chunks_; }
  // Per key: whether some query attends to it. Null: every key is live.
  const uint8_t* live() const { return all_live_ ? nullptr : live_.data(); }

 private:
  std::vector<kernels::BackwardChunk> chunks_;
  std::vector<int32_t> first_, last_;
  std::vector<uint8_t> live_;
  bool all_live_ = false;
};

}  // namespace tessera::cpu
