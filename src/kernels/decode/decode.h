// kernels/decode/decode.h: flash attention forward of few queries against many
// keys: sums over a part of the keys, and the merge of all parts.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/attention.h"
#include "tessera/machine.h"

namespace tessera::kernels {

// The most rows of a task. A row is one query of one head; the rows of a task
// read the same keys and values.
inline constexpr int64_t kDecodeRows = 16;

// Keys [begin, end).
struct KeyRun {
  int64_t begin = 0;
  int64_t end = 0;
};

// Softmax sums of a row over some of its keys: the largest score, in units of
// log2(e), and the sum of exponentials relative to it.
struct DecodeSums {
  float max = -__builtin_inff();
  float sum = 0;
};

// Adds keys to the sums of rows. Every row attends to every key of the runs, so
// there is no mask.
struct DecodeTask {
  Dtype dtype = Dtype::f32;
  int64_t rows = 0;      // 1 to kDecodeRows
  int64_t head_dim = 0;  // a multiple of 8, like v_head_dim
  int64_t v_head_dim = 0;
  const void* const* q = nullptr;  // per row
  // Rows start at key 0; strides count elements.
  const void* k = nullptr;
  const void* v = nullptr;
  int64_t k_stride = 0, v_stride = 0;
  float scale = 1;
  float softcap = 0;  // 0: off
  const KeyRun* runs = nullptr;
  int64_t run_count = 0;
  DecodeSums* sums = nullptr;  // per row
  float* out = nullptr;        // sums of values, decode_pitch() floats a row
  float* scratch = nullptr;    // decode_scratch() floats, 64-byte aligned
  int64_t* pairs = nullptr;    // grows by the scores that were computed
};

int64_t decode_pitch(int64_t v_head_dim);
int64_t decode_scratch(int64_t head_dim, int64_t v_head_dim);

// Merges the parts of one row in order, and writes the row.
struct DecodeMerge {
  Dtype dtype = Dtype::f32;
  int64_t parts = 0;
  int64_t v_head_dim = 0;
  DecodeSums* sums = nullptr;  // sums[i * sums_stride]; overwritten
  int64_t sums_stride = 0;
  const float* out = nullptr;  // part i begins at out + i * out_stride
  int64_t out_stride = 0;
  bool live = false;                  // the query has a legal key
  const float* sink_logit = nullptr;  // null: none
  void* to = nullptr;
  float* lse = nullptr;  // null: not wanted
};

struct DecodeVariant {
  Isa isa = Isa::portable;
  bool bf16_only = false;
  void (*run)(const DecodeTask&) = nullptr;
  void (*merge)(const DecodeMerge&) = nullptr;
};

// All compiled-in variants, in ascending order of preference.
std::span<const DecodeVariant> decode_variants();

}  // namespace tessera::kernels
