// route/product.cc: one loop, compiled for vectors of each size. Code inside a
// function for one ISA is inlined there, so no other file can link it.
#include "route/product.h"

#include <cstring>

namespace tessera::routing {
namespace {

typedef float Four __attribute__((vector_size(16)));
typedef float Eight __attribute__((vector_size(32)));
typedef float Sixteen __attribute__((vector_size(64)));

// Multiplies rows [0, kRows) by one panel.
template <class V, int kRows>
inline __attribute__((always_inline)) void panel_rows(const PanelProduct& p,
                                                      const float* a,
                                                      const float* panel,
                                                      float* out) {
  constexpr int kLanes = sizeof(V) / sizeof(float);
  constexpr int kVectors = static_cast<int>(kPanelKeys) / kLanes;
  V sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) sum[r][j] = V{};
  }
  for (int64_t d = 0; d < p.dim; ++d) {
    V keys[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      std::memcpy(&keys[j], panel + d * kPanelKeys + j * kLanes, sizeof(V));
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const float x = a[r * p.lda + d];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[r][j] += keys[j] * x;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      float* const to = out + r * p.ldo + j * kLanes;
      if (p.add) {
        V before;
        std::memcpy(&before, to, sizeof(V));
        sum[r][j] = before + sum[r][j];
      }
      std::memcpy(to, &sum[r][j], sizeof(V));
    }
  }
}

template <class V, int kRows>
inline __attribute__((always_inline)) void multiply(const PanelProduct& p) {
  for (int64_t i = 0; i < p.count; ++i) {
    const float* panel = p.panels + i * p.dim * kPanelKeys;
    float* out = p.out + i * kPanelKeys;
    int64_t r = 0;
    for (; r + kRows <= p.rows; r += kRows) {
      panel_rows<V, kRows>(p, p.a + r * p.lda, panel, out + r * p.ldo);
    }
    for (; r < p.rows; ++r) {
      panel_rows<V, 1>(p, p.a + r * p.lda, panel, out + r * p.ldo);
    }
  }
}

void multiply_portable(const PanelProduct& p) { multiply<Four, 2>(p); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) void multiply_avx2(const PanelProduct& p) {
  multiply<Eight, 5>(p);
}
__attribute__((target("avx512f"))) void multiply_avx512(const PanelProduct& p) {
  multiply<Sixteen, 12>(p);
}
#endif

}  // namespace

void multiply_panels(Isa isa, const PanelProduct& p) {
#if defined(__x86_64__)
  if (isa == Isa::avx2) return multiply_avx2(p);
  if (isa != Isa::portable) return multiply_avx512(p);
#endif
  static_cast<void>(isa);
  multiply_portable(p);
}

}  // namespace tessera::routing
