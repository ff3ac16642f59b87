// base/float16.h: the two 16-bit floating-point formats, to and from wider
// ones. Rounds once, to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

inline float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

inline float f16_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = bits >> 10 & 31;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {  // subnormal: a multiple of 2^-24
    const float size = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -size : size;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

// Bits of the nearest number with kExponent and kFraction bits; a number that
// is too large becomes infinite, a NaN stays a NaN.
template <int kExponent, int kFraction>
uint16_t narrow_to_16(double value) {
  constexpr int kLast = (1 << kExponent) - 1;  // exponent of Inf and NaN
  constexpr int kBias = kLast / 2;
  constexpr uint32_t kInfinity = uint32_t{kLast} << kFraction;
  const auto bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<uint32_t>(bits >> 48 & 0x8000u);
  const uint64_t size = bits & ~(uint64_t{1} << 63);
  if (value != value) {
    return static_cast<uint16_t>(sign | kInfinity | 1u << (kFraction - 1));
  }
  const int exponent = static_cast<int>(size >> 52) - 1023 + kBias;
  if (exponent >= kLast) return static_cast<uint16_t>(sign | kInfinity);
  const bool normal = exponent > 0;
  const int drop = 52 - kFraction + (normal ? 0 : 1 - exponent);
  if (drop > 54) return static_cast<uint16_t>(sign);
  constexpr uint64_t kHidden = uint64_t{1} << 52;
  const uint64_t whole = (size & (kHidden - 1)) | kHidden;
  const uint64_t rest = whole & ((uint64_t{1} << drop) - 1);
  const uint64_t half = uint64_t{1} << (drop - 1);
  uint64_t kept = whole >> drop;
  kept += rest > half || (rest == half && (kept & 1) == 1);
  // The hidden bit adds 1 to the exponent field, and so does a carry.
  const uint64_t above =
      normal ? static_cast<uint64_t>(exponent - 1) << kFraction : 0;
  return static_cast<uint16_t>(sign | (above + kept));
}

inline uint16_t to_bf16(double value) { return narrow_to_16<8, 7>(value); }
inline uint16_t to_f16(double value) { return narrow_to_16<5, 10>(value); }

}  // namespace tessera
