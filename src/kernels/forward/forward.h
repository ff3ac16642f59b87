// kernels/forward/forward.h: flash attention forward over the active keys of
// one block of queries of one head.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/attention.h"
#include "tessera/machine.h"

namespace tessera::kernels {

// Queries of one task at most, and keys of one chunk at most.
inline constexpr int64_t kForwardRows = 256;
inline constexpr int64_t kForwardKeys = 128;

// Bounds are there for rows up to a multiple of it: a panel of any ISA.
inline constexpr int64_t kRowStep = 32;

// Neighbouring keys that some query of the block attends to. Query r attends to
// the keys [first[i][r], last[i][r)) of every layer i, counted from `begin`; to
// all of them where there is no layer.
struct KeyChunk {
  int64_t begin = 0;
  int32_t keys = 0;
  int32_t layers = 0;
  const int32_t* first = nullptr;  // [layers][kForwardRows]; rows from the last
  const int32_t* last = nullptr;   // real one on repeat it
  // Per key: does some query of the block attend to it? Null: to every one.
  // Other keys are never read, whatever they hold.
  const uint8_t* live = nullptr;
};

struct ForwardTask {
  Dtype dtype = Dtype::f32;
  int64_t rows = 0;      // queries
  int64_t head_dim = 0;  // a multiple of 8, as is the other
  int64_t v_head_dim = 0;
  // Rows of numbers, `stride` numbers apart; k and v begin at key 0.
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0;
  float* lse = nullptr;  // `rows` of them, or null
  // The same of the entropy, in nats; no other output changes by a bit.
  float* entropy = nullptr;
  float scale = 1;
  float softcap = 0;                  // 0: off
  const float* sink_logit = nullptr;  // null: none
  const KeyChunk* chunks = nullptr;   // ascending
  int64_t chunk_count = 0;
  const uint8_t* live = nullptr;  // per query: has it a legal key?
  float* scratch = nullptr;       // forward_scratch() floats, 64-byte aligned
  int64_t* pairs = nullptr;       // grows by the scores that were computed
  // Asked before each chunk; once it says yes, the rest is left out and what
  // is written is unspecified. Null: nobody asks.
  bool (*stopped)(const void* stop) = nullptr;
  const void* stop = nullptr;
};

int64_t forward_scratch(int64_t head_dim, int64_t v_head_dim);

struct ForwardVariant {
  Isa isa = Isa::portable;
  bool bf16_only = false;
  void (*run)(const ForwardTask&) = nullptr;
};

// All that are compiled in, in ascending order of preference.
std::span<const ForwardVariant> forward_variants();

}  // namespace tessera::kernels
