// kernels/forward/forward.h: flash attention forward over the active keys of
// one block of queries of one head.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/attention.h"
#include "tessera/machine.h"

namespace tessera::kernels {

// The most queries of a task, and the most keys of a chunk.
inline constexpr int64_t kForwardRows = 256;
inline constexpr int64_t kForwardKeys = 128;

// Mask bounds exist for `rows` rounded up to this multiple, a panel of the
// widest ISA.
inline constexpr int64_t kRowStep = 32;

// Consecutive keys that some query of the block attends to. Query r attends to
// the keys [first[i][r], last[i][r]) of each layer i, counted from `begin`.
// Without layers, every query attends to every key of the chunk.
struct KeyChunk {
  int64_t begin = 0;
  int32_t keys = 0;
  int32_t layers = 0;
  const int32_t* first = nullptr;  // [layers][kForwardRows]; padding rows
  const int32_t* last = nullptr;   // repeat the last real row
  // Per key: nonzero if some query of the block attends to the key; null: every
  // key is attended to. Other keys are never read.
  const uint8_t* live = nullptr;
};

struct ForwardTask {
  Dtype dtype = Dtype::f32;
  int64_t rows = 0;      // queries
  int64_t head_dim = 0;  // a multiple of 8, like v_head_dim
  int64_t v_head_dim = 0;
  // k and v start at key 0; strides count elements.
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0;
  float* lse = nullptr;  // `rows` floats, or null
  // Entropies in nats, `rows` floats, or null; the other outputs are the same
  // to the bit either way.
  float* entropy = nullptr;
  float scale = 1;
  float softcap = 0;                  // 0: off
  const float* sink_logit = nullptr;  // null: none
  const KeyChunk* chunks = nullptr;   // ascending
  int64_t chunk_count = 0;
  const uint8_t* live = nullptr;  // per query: nonzero if it has a legal key
  float* scratch = nullptr;       // forward_scratch() floats, 64-byte aligned
  int64_t* pairs = nullptr;       // grows by the scores that were computed
  // Called before each chunk. Once it returns true, the rest is skipped and the
  // outputs are unspecified. Null: never called.
  bool (*stopped)(const void* stop) = nullptr;
  const void* stop = nullptr;
};

int64_t forward_scratch(int64_t head_dim, int64_t v_head_dim);

struct ForwardVariant {
  Isa isa = Isa::portable;
  bool bf16_only = false;
  void (*run)(const ForwardTask&) = nullptr;
};

// All compiled-in variants, in ascending order of preference.
std::span<const ForwardVariant> forward_variants();

}  // namespace tessera::kernels
