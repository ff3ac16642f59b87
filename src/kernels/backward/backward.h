// kernels/backward/backward.h: flash attention backward for one block of keys
// of one K/V head, which takes its queries chunk by chunk.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/attention.h"
#include "tessera/machine.h"

namespace tessera::kernels {

// The most keys of a block, and the most queries of a chunk.
inline constexpr int64_t kBackwardKeys = 128;
inline constexpr int64_t kBackwardRows = 128;

// Floats of one row of the dq accumulator: head_dim rounded up to a panel of
// the widest ISA.
int64_t dq_row_floats(int64_t head_dim);

// The keys of a block, and where their gradients go.
struct BackwardBlock {
  Dtype dtype = Dtype::f32;
  int64_t keys = 0;
  int64_t head_dim = 0;  // a multiple of 8, like v_head_dim
  int64_t v_head_dim = 0;
  // Rows start at the block's first key; strides count elements.
  const void* k = nullptr;
  const void* v = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  int64_t k_stride = 0, v_stride = 0, dk_stride = 0, dv_stride = 0;
  float scale = 1;
  float softcap = 0;  // 0: off
  // Per key: nonzero if some query attends to the key; null: every key is
  // attended to. Other keys are never read.
  const uint8_t* live = nullptr;
  int64_t dq_row = 0;        // dq_row_floats()
  float* scratch = nullptr;  // backward_scratch() floats, 64-byte aligned
  int64_t* pairs = nullptr;  // grows by the scores that were computed
};

// Consecutive queries of one head. Query r attends to the keys [first[i][r],
// last[i][r]) of each layer i, counted from the block's first key. Without
// layers, every query attends to every key of the block.
struct BackwardChunk {
  int64_t rows = 0;
  int32_t layers = 0;
  const int32_t* first = nullptr;  // [layers][kBackwardRows]
  const int32_t* last = nullptr;
  const void* q = nullptr;
  const void* dout = nullptr;
  int64_t q_stride = 0, dout_stride = 0;
  const float* lse = nullptr;     // per query, in units of log2(e)
  const float* delta = nullptr;   // dout . out - dlse
  const uint8_t* live = nullptr;  // per query: nonzero if it has a legal key
  bool finite = true;             // no Inf or NaN in live rows of q and dout
  float* dq = nullptr;            // accumulator, dq_row_floats() a row
};

// delta[r] = dout . out of row r.
struct BackwardDelta {
  Dtype dtype = Dtype::f32;
  int64_t rows = 0;
  int64_t v_head_dim = 0;
  const void* dout = nullptr;
  const void* out = nullptr;
  int64_t dout_stride = 0, out_stride = 0;
  float* delta = nullptr;
};

// Rows for BackwardKernel::finite, which tests the numbers of live rows.
struct BackwardRows {
  Dtype dtype = Dtype::f32;
  int64_t rows = 0;
  int64_t dim = 0;
  const void* data = nullptr;
  int64_t stride = 0;
  const uint8_t* live = nullptr;
};

// Row r of dq is row r of `sum`, times scale.
struct BackwardDq {
  Dtype dtype = Dtype::f32;
  int64_t rows = 0;
  int64_t head_dim = 0;
  const float* sum = nullptr;
  int64_t sum_stride = 0;  // dq_row_floats()
  float scale = 1;
  void* dq = nullptr;
  int64_t dq_stride = 0;
};

int64_t backward_scratch(int64_t head_dim, int64_t v_head_dim);

// The scratch holds the state of a block from `begin` to `end`.
struct BackwardKernel {
  void (*begin)(const BackwardBlock&) = nullptr;
  void (*add)(const BackwardBlock&, const BackwardChunk&) = nullptr;
  void (*end)(const BackwardBlock&) = nullptr;  // writes dk and dv
  void (*delta)(const BackwardDelta&) = nullptr;
  void (*write_dq)(const BackwardDq&) = nullptr;
  bool (*finite)(const BackwardRows&) = nullptr;
};

struct BackwardVariant {
  Isa isa = Isa::portable;
  bool bf16_only = false;
  const BackwardKernel& (*kernel)() = nullptr;
};

// All compiled-in variants, in ascending order of preference.
std::span<const BackwardVariant> backward_variants();

}  // namespace tessera::kernels
