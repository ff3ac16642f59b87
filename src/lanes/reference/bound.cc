// lanes/reference/bound.cc: the error of fp32 attention against fp64.
//
// Let u be the unit roundoff of fp32, e that of P and dS where they are
// rounded to a 16-bit input type (else 0), o that of the output's dtype, D the
// head dimension of q and k, Dv that of v, n a row's legal keys, and
//
//   S = max_j |scale| sum_d |q_d k_jd|
//
// the size of the row's scores before cancellation. Errors are of first order.
// The error of a sum of n terms in blocks is taken to be (8 + sqrt n) u of the
// sum of magnitudes, and that of a dot product of D terms in order (D + 4) u.
//
// Forward.
//   s_j, c_j   err by (D + 4) u S: the products, the scale, and tanh, whose
//              slope is at most 1.
//   exp(c - m) errs by that of c and of m: 2 (D + 4) u S, relative.
//   p_j v_j    errs, relative, by
//                rho = e + (8 + sqrt n) u + 2 (D + 4) u S,
//              and a p_j below 2^-126 may become 0. So
//   out        |err| <= o |out| + sum_j (rho p_j + 2^-126) |v_j|
//   lse        |err| <= u |lse| + (8 + sqrt n) u + 2 (D + 4) u S
//
// A lane may divide by the sum of the rounded p_j (1 + d_j), |d_j| <= e. Then
// out is a mean of the values, whose error by d is sum_j p_j d_j (v_j - out).
// So rho loses its e and
//   out        |err| grows by e (1 + 2 e) sum_j p_j |v_j - out|, since 1 + 2 e
//              exceeds 1 / (1 - e),
//   lse        |err| grows by e (1 + e), and so does pi below, relative.
//
// Backward, from the stored out and lse. g = dout, h = dlse.
//   p_j = exp(c_j - lse) errs, relative, by
//                pi = (12 + sqrt n) u + 3 (D + 4) u S + 2 u |lse|:
//              c_j, the error and the size of lse, the subtraction, exp.
//   a_j = g.v_j errs by (Dv + 4) u sum_d |g_d v_jd|.
//   delta = g.out errs by sum_d |g_d| (error of out_d as it is stored)
//              + (Dv + 4) u sum_d |g_d out_d|: call it x.
//   t_j = a_j - delta + h errs by
//                tau_j = (error of a_j) + x + 3 u (|a_j| + |delta| + |h|).
//   w_j        the slope of the cap, 1 - (c_j / cap)^2, errs by
//                omega = (8 + (D + 4) S / cap) u, 0 without a cap: its own
//              slope by s_j is below 1 / cap.
//   ds_j = p_j t_j w_j, rounded to 16 bits, errs by
//                sigma_j = w_j |t_j| ((pi + e + 8 u) p_j + 2^-126)
//                          + p_j (w_j tau_j + (|t_j| + tau_j) omega).
//              With one key t_j is 0, and w_j may be far below omega.
//   dq         |err| <= o |dq| + |scale| sum_j |k_j| (sigma_j
//                                               + (8 + sqrt n) u |ds_j|)
//   dk         the same over the m queries and heads that see the key, with q
//              for k and m for n.
//   dv         |err| <= o |dv| + sum_i |g_i| ((pi_i + e + (8 + sqrt m) u) p_i
//                                             + 2^-126)
//   dsink      p_z (h - delta), p_z = exp(z - lse) with pi + u |z| in pi's
//              place: |err| <= u |dsink| + sum_i [ (pi_i + u |z|
//              + (8 + sqrt m) u) p_z |h - delta|
//              + p_z (x + 3 u (|delta| + |h|)) ]
//
// S counts only keys with finite scores: an infinite score is exact, and its
// p_j is 0.
//
// Each product and each result that is subnormal loses up to f = 2^-150, half
// of the least number. Where subnormal numbers are read and written as 0,
// f = 2^-126: so do the dot product of bf16 pairs, the threads of XLA's CPU
// plugins, and TPUs. So out, dq, dk, dv and dsink err by f more for each term
// and by f once more at the end, p_j by f, and ds_j by (2 + 2 Dv) f, and by f
// again when multiplied by the scale.
//
// A check may take out and lse as given, because recomputing them for every
// query would take too long. Their errors are then left out: pi becomes
// 12 u + (D + 4) u S + 2 u |lse|, with the S of the pair alone, and x loses its
// first term.
#include "lanes/reference/bound.h"

#include <cmath>
#include <limits>

namespace tessera::reference {
namespace {

double score_error(const RowFacts& row) {
  return static_cast<double>(row.head_dim + 4) * kEps32 * row.size;
}

}  // namespace

Rounding rounding_of(Dtype dtype, bool flushes) {
  const double lost = flushes ? kTiny32 : 0x1p-150;
  switch (dtype) {
    case Dtype::bf16:
      return {0x1p-8, 0x1p-134, 0x1p-8, 0x1.fep127, kTiny32};
    case Dtype::f16:
      return {0x1p-11, 0x1p-25, 0x1p-11, 65504, lost};
    default:
      return {kEps32, 0x1p-150, 0, std::numeric_limits<float>::max(), lost};
  }
}

double sum_error(int64_t terms) {
  return (8 + std::sqrt(static_cast<double>(terms))) * kEps32;
}

double dot_error(int64_t dim) { return static_cast<double>(dim + 4) * kEps32; }

double forward_error(const RowFacts& row, const Rounding& r) {
  return r.product - r.row_sum + sum_error(row.keys) + 2 * score_error(row);
}

double lse_error(const RowFacts& row) {
  return sum_error(row.keys) + 2 * score_error(row);
}

double row_sum_error(const Rounding& r) { return r.row_sum * (1 + r.row_sum); }

double probability_error(const RowFacts& row, bool lse_is_given) {
  const double stored = 2 * kEps32 * std::abs(row.lse);
  if (lse_is_given) return 12 * kEps32 + score_error(row) + stored;
  return 4 * kEps32 + sum_error(row.keys) + 3 * score_error(row) + stored;
}

double slope_error(const RowFacts& row, double softcap) {
  if (softcap == 0) return 0;
  return 8 * kEps32 + score_error(row) / softcap;
}

Compared compare(const Expected& want, double got, const Rounding& r) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Compared wrong = {kInfinity, kInfinity};
  if (std::isnan(want.value)) return std::isnan(got) ? Compared{} : wrong;
  if (std::isnan(got)) return wrong;
  const double size = std::abs(want.value);
  if (std::isinf(got)) {
    // Correct if the value, with the error that is allowed, may round to Inf.
    const bool reaches = size + want.error > r.largest * (1 - r.output);
    return reaches && std::signbit(got) == std::signbit(want.value) ? Compared{}
                                                                    : wrong;
  }
  if (std::isinf(want.value)) return wrong;
  const double error = std::abs(got - want.value);
  if (error == 0) return {};
  if (size == 0 && want.error == 0) return {error, kInfinity};
  const double allowed = want.error + r.output * size + r.output_tiny;
  if (std::isnan(allowed)) return {error, kInfinity};
  return {error, error / allowed};
}

}  // namespace tessera::reference
