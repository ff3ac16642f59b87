// kernels/simd/functions_kernel.h: the loops of functions.h, for any vector
// type.
#pragma once

#include <cstdint>

#include "kernels/simd/math.h"

namespace tessera::kernels {

#define FUNCTION(isa, name) \
  void name##_##isa(const float* from, float* to, int64_t count);
#include "kernels/simd/functions.inc"
#undef FUNCTION

namespace {

template <class V>
void exp2_array(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += V::kLanes) {
    V::store(to + i, exp2<V>(V::load(from + i)));
  }
}

template <class V>
void log2_array(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += V::kLanes) {
    V::store(to + i, log2<V>(V::load(from + i)));
  }
}

template <class V>
void tanh_array(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += V::kLanes) {
    V::store(to + i, Tanh<V>(V::load(from + i)).value);
  }
}

}  // namespace
}  // namespace tessera::kernels
