// bench/harness/peak/loops.cc: loops of independent instructions, enough to
// hide the latency of one. The ISA is a target attribute of each function, so
// that no other code of this file uses it.
#include "bench/harness/peak/loops.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera::bench {
namespace {

// Makes the compiler assume that `x` is read and changed here.
template <class T>
void opaque(T& x) {
  asm volatile("" : "+m"(x));
}

// Two instructions a cycle with a latency of 4 need 8 chains. 12 chains and the
// operands fit the 16 registers of every ISA.
constexpr int kChains = 12;

using Float4 = float __attribute__((vector_size(16)));

float fma_portable(int64_t rounds) {
  float one = 1, tiny = 1e-30F;
  opaque(one);
  opaque(tiny);
  const Float4 x = {one, one, one, one};
  const Float4 y = {tiny, tiny, tiny, tiny};
  Float4 sum[kChains];
  for (Float4& s : sum) s = Float4{};
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll kChains
    for (Float4& s : sum) s = s * x + y;
  }
  float total = 0;
  for (const Float4& s : sum) total += s[0] + s[1] + s[2] + s[3];
  return total;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) float fma_avx2(int64_t rounds) {
  float one = 1, tiny = 1e-30F;
  opaque(one);
  opaque(tiny);
  const __m256 x = _mm256_set1_ps(one);
  const __m256 y = _mm256_set1_ps(tiny);
  __m256 sum[kChains];
  for (__m256& s : sum) s = _mm256_setzero_ps();
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll kChains
    for (__m256& s : sum) s = _mm256_fmadd_ps(x, y, s);
  }
  float total = 0;  // of the first lane
  for (const __m256& s : sum) total += _mm256_cvtss_f32(s);
  return total;
}

__attribute__((target("avx512f"))) float fma_avx512(int64_t rounds) {
  float one = 1, tiny = 1e-30F;
  opaque(one);
  opaque(tiny);
  const __m512 x = _mm512_set1_ps(one);
  const __m512 y = _mm512_set1_ps(tiny);
  __m512 sum[kChains];
  for (__m512& s : sum) s = _mm512_setzero_ps();
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll kChains
    for (__m512& s : sum) s = _mm512_fmadd_ps(x, y, s);
  }
  float total = 0;  // of the first lane
  for (const __m512& s : sum) total += _mm512_cvtss_f32(s);
  return total;
}

__attribute__((target("avx512f,avx512bf16"))) float dot_avx512bf16(
    int64_t rounds) {
  int ones = 0x3f803f80;  // two bf16 of 1
  opaque(ones);
  const __m512bh x = (__m512bh)_mm512_set1_epi32(ones);
  __m512 sum[kChains];
  for (__m512& s : sum) s = _mm512_setzero_ps();
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll kChains
    for (__m512& s : sum) s = _mm512_dpbf16_ps(s, x, x);
  }
  float total = 0;  // of the first lane
  for (const __m512& s : sum) total += _mm512_cvtss_f32(s);
  return total;
}

// Chains of AMX tiles: 16 x 16 sums of 32 products each. One instruction in 16
// cycles with a latency of 52 needs 4 chains.
constexpr int kTileChains = 6;

__attribute__((target("avx512f,amx-tile,amx-bf16"))) float dot_amx(
    int64_t rounds) {
  struct alignas(64) {
    uint8_t palette = 1, start = 0, zero[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } shape;
  alignas(64) int ones[16 * 16];
  for (int& x : ones) x = 0x3f803f80;  // two bf16 of 1
  opaque(ones);
  opaque(shape);
  _tile_loadconfig(&shape);
  _tile_loadd(6, ones, 64);
  _tile_loadd(7, ones, 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t r = 0; r < rounds; ++r) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
  alignas(64) float sum[kTileChains][16 * 16];
  _tile_stored(0, sum[0], 64);
  _tile_stored(1, sum[1], 64);
  _tile_stored(2, sum[2], 64);
  _tile_stored(3, sum[3], 64);
  _tile_stored(4, sum[4], 64);
  _tile_stored(5, sum[5], 64);
  _tile_release();
  opaque(sum);
  float total = 0;  // of the first number of each tile
  for (const auto& tile : sum) total += tile[0];
  return total;
}
#endif

}  // namespace

Loop fma_loop([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::avx512) return {fma_avx512, kChains * 16 * 2.0};
  if (isa == Isa::avx2) return {fma_avx2, kChains * 8 * 2.0};
#endif
  return {fma_portable, kChains * 4 * 2.0};
}

Loop bf16_dot_loop([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::amx) return {dot_amx, kTileChains * 16 * 16 * 32 * 2.0};
  if (isa == Isa::avx512bf16) return {dot_avx512bf16, kChains * 32 * 2.0};
#endif
  return {};
}

uint64_t read_all(const std::byte* data, size_t bytes) {
  using Words = uint64_t __attribute__((vector_size(16)));
  // Four streams keep more cache lines in flight than one.
  constexpr size_t kStreams = 4;
  constexpr size_t kStep = 2 * 64;
  const size_t part = bytes / kStreams;
  Words sum[8] = {};
  for (size_t at = 0; at < part; at += kStep) {
    for (size_t s = 0; s < kStreams; ++s) {
      const std::byte* from = data + s * part + at;
      for (size_t i = 0; i < 8; ++i) {
        Words w;
        std::memcpy(&w, from + i * sizeof w, sizeof w);
        sum[i] += w;
      }
    }
  }
  uint64_t total = 0;
  for (const Words& w : sum) total += w[0] + w[1];
  return total;
}

}  // namespace tessera::bench
