// kernels/backward/backward.h: flash attention backward, one block of keys of
// one K/V head against one chunk of queries after another.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/attention.h"
#include "tessera/machine.h"

namespace tessera::kernels {

// Keys of one block at most, and queries of one chunk at most.
inline constexpr int64_t kBackwardKeys = 128;
inline constexpr int64_t kBackwardRows = 128;

// Floats of a row of dq while it is summed up: whole panels of any ISA.
int64_t dq_row_floats(int64_t head_dim);

// The keys of a block, and where their gradients go.
struct BackwardBlock {
  Dtype dtype = Dtype::f32;
  int64_t keys = 0;
  int64_t head_dim = 0;  // a multiple of 8, as is the other
  int64_t v_head_dim = 0;
  // Rows of numbers, `stride` numbers apart, from the first key of the block.
  const void* k = nullptr;
  const void* v = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  int64_t k_stride = 0, v_stride = 0, dk_stride = 0, dv_stride = 0;
  float scale = 1;
  float softcap = 0;  // 0: off
  // Per key: does some query attend to it? Null: to every one. Other keys are
  // never read, whatever they hold.
  const uint8_t* live = nullptr;
  int64_t dq_row = 0;        // dq_row_floats()
  float* scratch = nullptr;  // backward_scratch() floats, 64-byte aligned
  int64_t* pairs = nullptr;  // grows by the scores that were computed
};

// Neighbouring queries of one head. Query r attends to the keys [first[i][r],
// last[i][r)) of every layer i, counted from the block's first key; to all of
// them where there is no layer.
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
  const uint8_t* live = nullptr;  // per query: has it a legal key?
  bool finite = true;             // are all of q and dout, of live queries?
  float* dq = nullptr;            // rows of dq_row_floats(), added to
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

// Are all numbers of all live rows finite?
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

// A block lives in its scratch from `begin` to `end`.
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

// All that are compiled in, in ascending order of preference.
std::span<const BackwardVariant> backward_variants();

}  // namespace tessera::kernels
