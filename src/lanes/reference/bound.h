// lanes/reference/bound.h: how far a lane's fp32 element may be from fp64, and
// a check of that. bound.cc derives every formula.
#pragma once

#include <cstdint>

#include "tessera/attention.h"

namespace tessera::reference {

inline constexpr double kEps32 = 0x1p-24;  // unit roundoff of fp32

// Least normal fp32. A smaller probability may have become 0.
inline constexpr double kTiny32 = 0x1p-126;

struct Rounding {
  double output = kEps32;  // of the final cast, relative
  double output_tiny = 0;  // the same for a subnormal result, absolute
  double product = 0;      // of P and dS, if rounded to 16-bit inputs
  double largest = 0;      // finite number of the output's dtype
  double lost = 0;         // absolute, by underflow of each product and result
  double row_sum = 0;      // of P, if a row's sum adds rounded values
};
// `flushes`: the lane's processor reads and writes subnormal numbers as 0.
Rounding rounding_of(Dtype dtype, bool flushes = false);

// One query of one head.
struct RowFacts {
  int64_t keys = 0;      // legal ones
  int64_t head_dim = 0;  // of queries and keys
  double size = 0;       // max over keys of |scale| sum |q k|
  double lse = 0;
};

// Relative error of each probability's term in `out`, with rounding to 16 bits.
double forward_error(const RowFacts& row, const Rounding& r);
// Absolute error of the log-sum-exp.
double lse_error(const RowFacts& row);
// What a rounded row sum adds to lse_error(); 0 for an exact sum.
double row_sum_error(const Rounding& r);
// Relative error of a probability that is recomputed from the log-sum-exp. With
// `lse_is_given` the error of the log-sum-exp itself is left out.
double probability_error(const RowFacts& row, bool lse_is_given);
// Absolute error of the slope of the softcap; 0 without a softcap.
double slope_error(const RowFacts& row, double softcap);
// Error of a sum of `terms` products, relative to the sum of magnitudes.
double sum_error(int64_t terms);
// The same for one dot product, added in order.
double dot_error(int64_t dim);

struct Expected {
  double value = 0;
  double error = 0;  // before the final cast
};

struct Compared {
  double error = 0;  // |got - value|
  double ratio = 0;  // error over what is allowed; above 1 fails
};

// Adds the rounding of the final cast to the error that is allowed. A NaN or
// Inf that differs from what is expected has an infinite ratio. If an exact 0
// with error 0 is expected, anything else fails.
Compared compare(const Expected& want, double got, const Rounding& r);

}  // namespace tessera::reference
