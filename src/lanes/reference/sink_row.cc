// lanes/reference/sink_row.cc: sink mass and entropy with their errors, in the
// terms of bound.cc.
//
// mass = sum of p_j over the first keys. A lane computes it as exp(lse' - lse)
// from two log-sum-exps, each with its own error and stored as fp32. With n'
// first keys
//   E     = error of lse + u |lse| + (8 + sqrt n') u + 2 (D + 4) u S + u |lse'|
//   mass  |err| <= mass (e^E - 1), and never more than 1.
//
// H = - sum_j p_j log p_j, with a term for the sink logit. Let N be the number
// of terms, c the capped scores, d_j = c_j - max c <= 0,
// T = - sum_j p_j d_j, A = sum_j p_j |c_j - sum_i p_i c_i|.
//   Each c_j errs by at most e = (D + 4) u S. The slope of H by c_j is
//   - p_j (c_j - sum p c), so H changes by at most e times the largest A of the
//   scores in that range. There p grows by at most e^2e, c changes by e, and
//   the mean absolute deviation from the mean is at most twice that from any
//   other number. So this part of the error is at most
//     2 e e^2e (A + e), and never more than log N.
//   H = log l - t / l, l = sum e^d_j, t = sum e^d_j d_j. A weight e^d_j errs,
//   relative, by delta_j = (8 + sqrt N) u + 2 u |d_j|, which changes H by up to
//   sum_j p_j delta_j (1 + |d_j| + T). No terms of t cancel: its sum errs by
//   (8 + sqrt N) u T. The logarithm, the division and the difference of two
//   numbers that are not negative err by 8 u H. A weight below 2^-126 may be
//   0: times its d_j, that is up to 2^-119 for each term.
#include "lanes/reference/sink_row.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lanes/sink_rows.h"
#include "lanes/stop.h"

namespace tessera::reference {
namespace {

double score_error(const RowFacts& row) {
  return dot_error(row.head_dim) * row.size;
}

Expected mass_of(const QueryRow& row, std::span<const uint8_t> first,
                 double softcap) {
  Expected out;
  int64_t keys = 0;
  double most = -std::numeric_limits<double>::infinity();  // log p of the first
  for (size_t j = 0; j < row.keys.size(); ++j) {
    if (first[j] == 0) continue;
    ++keys;
    out.value += row.probability[j];
    const double score = softcap == 0
                             ? row.score[j]
                             : softcap * std::tanh(row.score[j] / softcap);
    most = std::max(most, score - row.facts.lse);
  }
  // Without a first key of finite score the mass is exactly 0.
  if (!std::isfinite(most)) return out;
  const double log_mass = out.value > 0
                              ? std::log(out.value)
                              : most + std::log(static_cast<double>(keys));
  RowFacts among = row.facts;
  among.keys = keys;
  const double error =
      lse_error(row.facts) + lse_error(among) +
      kEps32 * (std::abs(row.facts.lse) + std::abs(row.facts.lse + log_mass));
  const double log_growth = error > 30 ? error : std::log(std::expm1(error));
  out.error = std::exp(std::min(0.0, log_mass + log_growth));
  return out;
}

Expected entropy_of(const QueryRow& row) {
  std::vector<double> log_p;
  const auto add = [&](double p) {
    if (p > 0) log_p.push_back(std::log(p));
  };
  for (const double p : row.probability) add(p);
  add(row.sink_probability);
  Expected out;
  for (const double x : log_p) out.value -= std::exp(x) * x;
  const double top = *std::max_element(log_p.begin(), log_p.end());
  const double spread = out.value + top;  // T
  const auto terms = static_cast<int64_t>(row.keys.size()) + 1;
  const double sum = sum_error(terms);
  double deviation = 0;  // A
  double weights = 0;
  for (const double x : log_p) {
    const double p = std::exp(x);
    const double d = top - x;
    deviation += p * std::abs(x + out.value);
    weights += p * (sum + 2 * kEps32 * d) * (1 + d + spread);
  }
  const double e = score_error(row.facts);
  const double scores =
      std::min(2 * e * std::exp(std::min(2 * e, 700.0)) * (deviation + e),
               std::log(static_cast<double>(terms)));
  out.error = scores + weights + sum * spread + 8 * kEps32 * out.value +
              static_cast<double>(terms) * 0x1p-119;
  return out;
}

}  // namespace

SinkRow sink_row(const QueryRow& row, std::span<const uint8_t> first,
                 double softcap) {
  SinkRow out;
  out.live = !row.keys.empty();
  if (!out.live) return out;
  if (!std::isfinite(row.facts.lse)) {
    out.mass.value = out.entropy.value =
        std::numeric_limits<double>::quiet_NaN();
    return out;
  }
  out.mass = mass_of(row, first, softcap);
  out.entropy = entropy_of(row);
  return out;
}

Result<std::vector<SinkRow>> sink_rows(const Batch& batch,
                                       const AttentionShape& shape,
                                       const ForwardTensors& tensors,
                                       int64_t first_keys,
                                       const StopFlag* stop) {
  auto among = lanes::first_keys_batch(batch, first_keys, "reference");
  if (!among) return among.error();
  auto first = Legality::bind(among->request(), among->facts());
  if (!first) return first.error();
  auto oracle = RowOracle::bind(batch.request(), batch.facts(), shape, tensors);
  if (!oracle) return oracle.error();
  const int64_t group = shape.heads / first->heads();
  std::vector<SinkRow> out;
  QueryRow row;
  std::vector<uint8_t> counts;
  for (int64_t b = 0; b < batch.request().batch; ++b) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      for (int64_t q = 0; q < batch.request().q_len; ++q) {
        if (auto e = lanes::check_stop(stop, "reference", "between queries");
            !e) {
          return e.error();
        }
        oracle->forward(b, h, q, row);
        counts.clear();
        for (const int64_t key : row.keys) {
          counts.push_back(first->legal(b, h / group, q, key) ? 1 : 0);
        }
        out.push_back(sink_row(row, counts, shape.softcap));
      }
    }
  }
  return out;
}

}  // namespace tessera::reference
