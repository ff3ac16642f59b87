// lanes/reference/bound.h: how far from fp64 an element may be that a lane
// computed in fp32, and whether it is. bound.cc derives every formula.
#pragma once

#include <cstdint>

#include "tessera/attention.h"

namespace tessera::reference {

inline constexpr double kEps32 = 0x1p-24;  // unit roundoff of fp32

// Least normal fp32: a probability below it may have become 0.
inline constexpr double kTiny32 = 0x1p-126;

struct Rounding {
  double output = kEps32;  // of the cast at the end, relative
  double output_tiny = 0;  // the same where the result is subnormal, absolute
  double product = 0;      // of P and dS, which 16-bit inputs may round
  double largest = 0;      // what the output's dtype can hold
  double lost = 0;         // absolute, of each product and each result
  double row_sum = 0;      // of P, where a row's sum is of what is rounded
};
// `flushes`: the lane's processor takes and gives 0 for a subnormal number.
Rounding rounding_of(Dtype dtype, bool flushes = false);

// One query of one head.
struct RowFacts {
  int64_t keys = 0;      // legal ones
  int64_t head_dim = 0;  // of queries and keys
  double size = 0;       // max over keys of |scale| sum |q k|
  double lse = 0;
};

// Relative error of each probability's share in `out`, its rounding to 16 bits
// included.
double forward_error(const RowFacts& row, const Rounding& r);
// Absolute, of the log-sum-exp.
double lse_error(const RowFacts& row);
// What a rounded row sum adds to that; 0 of an exact one.
double row_sum_error(const Rounding& r);
// Relative, of a probability that is computed again from a given log-sum-exp;
// a stored one of `lse_is_given` brings no error of its own.
double probability_error(const RowFacts& row, bool lse_is_given);
// Absolute, of the slope of the cap; 0 without one.
double slope_error(const RowFacts& row, double softcap);
// Relative to the sum of magnitudes, of a sum of `terms` products.
double sum_error(int64_t terms);
// The same of one dot product in order.
double dot_error(int64_t dim);

struct Expected {
  double value = 0;
  double error = 0;  // before the cast at the end
};

struct Compared {
  double error = 0;  // |got - value|
  double ratio = 0;  // of the error to what is allowed; above 1 fails
};

// Casts to `dtype`'s rounding are allowed for here. NaN and Inf must be met by
// their like; a mismatch has an infinite ratio. An expected exact 0 with error
// 0 allows nothing else.
Compared compare(const Expected& want, double got, const Rounding& r);

}  // namespace tessera::reference
