// lanes/reference/rows.cc: single rows of attention in fp64, with the formulas
// and names of reference.cc, and those of bound.cc for errors. Inner loops use
// pointers: with sanitizers, a vector's [] takes most of a test's time.
#include "lanes/reference/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/fail.h"
#include "base/tensor_rows.h"
#include "lanes/reference/softcap.h"

namespace tessera::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A dot product and the sum of its magnitudes, in eight running sums that the
// compiler may keep in vectors.
struct Dot {
  double value = 0, size = 0;
};
Dot dot(const double* a, const double* b, int64_t n) {
  constexpr int64_t kLanes = 8;
  double values[kLanes] = {};
  double sizes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double product = a[i + lane] * b[i + lane];
      values[lane] += product;
      sizes[lane] += std::abs(product);
    }
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) {
    values[lane] += a[i] * b[i];
    sizes[lane] += std::abs(a[i] * b[i]);
  }
  Dot d;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    d.value += values[lane];
    d.size += sizes[lane];
  }
  return d;
}

// The size that a score's error is relative to. An infinite score has no error:
// its probability is 0 or that of the cap, or the row is NaN.
double score_size(double scale, const Dot& d) {
  return std::isfinite(d.value) ? std::abs(scale) * d.size : 0;
}

size_t index(int64_t i) { return static_cast<size_t>(i); }

// Adds factor * x to a sum, and error_of(x) to its error.
template <class Error>
void add_scaled(const std::vector<double>& x, double factor, RowValues& sum,
                const Error& error_of) {
  const double* from = x.data();
  double* value = sum.value.data();
  double* error = sum.error.data();
  for (size_t d = 0, n = x.size(); d < n; ++d) {
    value[d] += factor * from[d];
    error[d] += error_of(from[d]);
  }
}

// The same for a key's gradient, which also sums the magnitudes of the terms.
template <class Error>
void add_key_term(const std::vector<double>& x, double factor, RowValues& sum,
                  std::vector<double>& sizes, const Error& error_of) {
  add_scaled(x, factor, sum, error_of);
  const double* from = x.data();
  double* size = sizes.data();
  for (size_t d = 0, n = x.size(); d < n; ++d) {
    size[d] += std::abs(factor * from[d]);
  }
}

}  // namespace

RowOracle::RowOracle(Legality legality, const Request& request,
                     const AttentionShape& shape, const ForwardTensors& tensors,
                     const Gradients& gradients, const Rounding& rounding)
    : legality_(std::move(legality)),
      shape_(shape),
      tensors_(tensors),
      gradients_(gradients),
      batch_(request.batch),
      q_len_(request.q_len),
      kv_len_(request.kv_len),
      scale_(shape.scale_or_default()),
      rounding_(rounding),
      q_(index(shape.head_dim)),
      k_(index(shape.head_dim)),
      v_(index(shape.v_head_dim)),
      g_(index(shape.v_head_dim)),
      out_(index(shape.v_head_dim)),
      magnitude_(index(std::max(shape.head_dim, shape.v_head_dim))) {}

Result<RowOracle> RowOracle::bind(const Request& request, const Facts& facts,
                                  const AttentionShape& shape,
                                  const ForwardTensors& tensors,
                                  const Gradients& gradients, bool flushes,
                                  bool rounded_sum) {
  if (shape.heads < 1 || shape.kv_heads < 1 ||
      shape.heads % shape.kv_heads != 0) {
    return invalid("check", "kv_heads must divide heads, found {} for {}",
                   shape.kv_heads, shape.heads);
  }
  auto legality = Legality::bind(request, facts);
  if (!legality) return legality.error();
  if (shape.heads % legality->heads() != 0) {
    return invalid("check", "plan heads must divide heads, found {} for {}",
                   legality->heads(), shape.heads);
  }
  Rounding rounding = rounding_of(tensors.q.dtype, flushes);
  if (rounded_sum) rounding.row_sum = rounding.product;
  return RowOracle(std::move(*legality), request, shape, tensors, gradients,
                   rounding);
}

void RowOracle::add_row_sum(QueryRow& row) {
  row.lse.error += row_sum_error(rounding_);
  const double factor = rounding_.row_sum * (1 + 2 * rounding_.row_sum);
  for (size_t j = 0; j < row.keys.size(); ++j) {
    read_row(tensors_.v, row.b, kv_head(row.h), row.keys[j], v_.data());
    const double size = factor * row.probability[j];
    for (size_t d = 0; d < v_.size(); ++d) {
      row.out.error[d] += size * std::abs(v_[d] - row.out.value[d]);
    }
  }
}

const double* RowOracle::query(int64_t b, int64_t h, int64_t q) {
  read_row(tensors_.q, b, h, q, q_.data());
  return q_.data();
}

const double* RowOracle::dout(int64_t b, int64_t h, int64_t q) {
  read_row(gradients_.dout, b, h, q, g_.data());
  return g_.data();
}

double RowOracle::dlse(int64_t b, int64_t h, int64_t q) const {
  if (gradients_.dlse.empty()) return 0;
  return gradients_.dlse[index((b * shape_.heads + h) * q_len_ + q)];
}

void RowOracle::forward(int64_t b, int64_t h, int64_t q, QueryRow& row) {
  row.b = b, row.h = h, row.q = q;
  row.keys.clear();
  row.score.clear();
  row.probability.clear();
  row.out.reset(shape_.v_head_dim);
  for (int64_t key = 0; key < kv_len_; ++key) {
    if (legality_.legal(b, plan_head(h), q, key)) row.keys.push_back(key);
  }
  const double sink =
      tensors_.sink_logits ? (*tensors_.sink_logits)[index(h)] : -kInfinity;
  row.facts = {static_cast<int64_t>(row.keys.size()), shape_.head_dim, 0, sink};
  row.lse = {sink, 0};
  row.sink_probability = 1;
  if (row.keys.empty()) return;

  query(b, h, q);
  double top = sink;
  for (const int64_t key : row.keys) {
    read_row(tensors_.k, b, kv_head(h), key, k_.data());
    const Dot d = dot(q_.data(), k_.data(), shape_.head_dim);
    row.score.push_back(scale_ * d.value);
    row.facts.size = std::max(row.facts.size, score_size(scale_, d));
    row.probability.push_back(capped(row.score.back(), shape_.softcap));
    top = std::max(top, row.probability.back());
  }
  double sum = 0;
  for (double& p : row.probability) sum += p = std::exp(p - top);
  const double sink_exp = tensors_.sink_logits ? std::exp(sink - top) : 0;
  sum += sink_exp;
  for (double& p : row.probability) p /= sum;
  row.sink_probability = sink_exp / sum;
  row.facts.lse = top + std::log(sum);
  row.lse = {row.facts.lse, lse_error(row.facts)};

  const double rho = forward_error(row.facts, rounding_);
  for (size_t j = 0; j < row.keys.size(); ++j) {
    read_row(tensors_.v, b, kv_head(h), row.keys[j], v_.data());
    const double p = row.probability[j];
    add_scaled(v_, p, row.out,
               [&](double x) { return (rho * p + kTiny32) * std::abs(x); });
  }
  if (rounding_.row_sum > 0) add_row_sum(row);
  row.lse.error += rounding_.lost;
  const double terms = static_cast<double>(row.keys.size()) + 1;
  for (double& error : row.out.error) error += terms * rounding_.lost;
}

void RowOracle::backward(const QueryRow& row, QueryGradient& gradient) {
  const int64_t dim = shape_.head_dim;
  const int64_t v_dim = shape_.v_head_dim;
  const auto n = static_cast<int64_t>(row.keys.size());
  gradient.dq.reset(dim);
  gradient.weight.reset(n);
  gradient.ds.reset(n);
  const double h = dlse(row.b, row.h, row.q);
  gradient.sink = {tensors_.sink_logits ? h : 0, 0};
  if (n == 0) return;

  dout(row.b, row.h, row.q);
  const Dot delta = dot(g_.data(), row.out.value.data(), v_dim);
  double delta_error = dot_error(v_dim) * delta.size;
  for (size_t d = 0; d < g_.size(); ++d) {
    delta_error +=
        std::abs(g_[d]) *
        (row.out.error[d] + rounding_.output * std::abs(row.out.value[d]) +
         rounding_.output_tiny);
  }
  const double pi =
      probability_error(row.facts, false) + row_sum_error(rounding_);
  const double omega = slope_error(row.facts, shape_.softcap);
  std::fill(magnitude_.begin(), magnitude_.end(), 0);
  for (size_t j = 0; j < row.keys.size(); ++j) {
    const int64_t key = row.keys[j];
    read_row(tensors_.v, row.b, kv_head(row.h), key, v_.data());
    read_row(tensors_.k, row.b, kv_head(row.h), key, k_.data());
    const Dot a = dot(g_.data(), v_.data(), v_dim);
    const double p = row.probability[j];
    const double t = a.value - delta.value + h;
    const double t_error =
        dot_error(v_dim) * a.size + delta_error +
        3 * kEps32 * (std::abs(a.value) + std::abs(delta.value) + std::abs(h));
    const double w = cap_slope(row.score[j], shape_.softcap);
    gradient.weight.value[j] = p;
    gradient.weight.error[j] =
        (pi + rounding_.product) * p + kTiny32 + rounding_.lost;
    gradient.ds.value[j] = p * t * w;
    gradient.ds.error[j] =
        w * std::abs(t) *
            ((pi + rounding_.product + 8 * kEps32) * p + kTiny32) +
        p * (w * t_error + (std::abs(t) + t_error) * omega) + ds_lost();
    const double ds = gradient.ds.value[j];
    const double ds_error = gradient.ds.error[j] + sum_error(n) * std::abs(ds);
    add_scaled(k_, scale_ * ds, gradient.dq, [&](double x) {
      return std::abs(scale_ * x) * ds_error +
             (1 + std::abs(x)) * rounding_.lost;
    });
  }
  if (!tensors_.sink_logits) return;
  const double z = (*tensors_.sink_logits)[index(row.h)];
  const double p = row.sink_probability;
  const double t = h - delta.value;
  const double size = std::abs(delta.value) + std::abs(h);
  gradient.sink.value = p * t;
  gradient.sink.error =
      ((pi + std::abs(z) * kEps32) * p + kTiny32) * std::abs(t) +
      p * (delta_error + 3 * kEps32 * size) + rounding_.lost;
}

void RowOracle::key_gradient(int64_t b, int64_t kv_head_of_key, int64_t key,
                             RowValues& dk, RowValues& dv) {
  const int64_t dim = shape_.head_dim;
  const int64_t v_dim = shape_.v_head_dim;
  dk.reset(dim);
  dv.reset(v_dim);
  std::vector<double> dk_size(index(dim)), dv_size(index(v_dim));
  read_row(tensors_.k, b, kv_head_of_key, key, k_.data());
  read_row(tensors_.v, b, kv_head_of_key, key, v_.data());
  const int64_t group = shape_.heads / shape_.kv_heads;
  int64_t terms = 0;
  for (int64_t h = kv_head_of_key * group; h < (kv_head_of_key + 1) * group;
       ++h) {
    for (int64_t q = 0; q < q_len_; ++q) {
      if (!legality_.legal(b, plan_head(h), q, key)) continue;
      ++terms;
      query(b, h, q);
      dout(b, h, q);
      read_row(as_input(tensors_.out), b, h, q, out_.data());
      const Dot score = dot(q_.data(), k_.data(), dim);
      const double lse =
          tensors_.lse[index((b * shape_.heads + h) * q_len_ + q)];
      const double s = scale_ * score.value;
      const RowFacts facts = {1, dim, score_size(scale_, score), lse};
      const double p = std::exp(capped(s, shape_.softcap) - lse);
      const Dot a = dot(g_.data(), v_.data(), v_dim);
      const Dot delta = dot(g_.data(), out_.data(), v_dim);
      const double e = dlse(b, h, q);
      const double t = a.value - delta.value + e;
      const double t_error =
          dot_error(v_dim) * (a.size + delta.size) +
          3 * kEps32 *
              (std::abs(a.value) + std::abs(delta.value) + std::abs(e));
      const double w = cap_slope(s, shape_.softcap);
      const double pi = probability_error(facts, true);
      const double omega = slope_error(facts, shape_.softcap);
      const double ds = p * t * w;
      const double ds_error =
          w * std::abs(t) *
              ((pi + rounding_.product + 8 * kEps32) * p + kTiny32) +
          p * (w * t_error + (std::abs(t) + t_error) * omega) + ds_lost();
      const double p_error =
          (pi + rounding_.product) * p + kTiny32 + rounding_.lost;
      add_key_term(q_, scale_ * ds, dk, dk_size, [&](double x) {
        return std::abs(scale_ * x) * ds_error +
               (1 + std::abs(x)) * rounding_.lost;
      });
      add_key_term(g_, p, dv, dv_size, [&](double x) {
        return std::abs(x) * p_error + rounding_.lost;
      });
    }
  }
  for (size_t d = 0; d < q_.size(); ++d) {
    dk.error[d] += sum_error(terms) * dk_size[d];
  }
  for (size_t d = 0; d < g_.size(); ++d) {
    dv.error[d] += sum_error(terms) * dv_size[d];
  }
}

Expected RowOracle::sink_gradient(int64_t h) {
  Expected sum;
  double size = 0;
  const double z = (*tensors_.sink_logits)[index(h)];
  for (int64_t b = 0; b < batch_; ++b) {
    for (int64_t q = 0; q < q_len_; ++q) {
      dout(b, h, q);
      read_row(as_input(tensors_.out), b, h, q, out_.data());
      const bool zero = std::all_of(out_.begin(), out_.end(),
                                    [](double x) { return x == 0; });
      const Dot delta =
          zero ? Dot{} : dot(g_.data(), out_.data(), shape_.v_head_dim);
      const double e = dlse(b, h, q);
      const double lse =
          tensors_.lse[index((b * shape_.heads + h) * q_len_ + q)];
      const double p = std::exp(z - lse);
      const double t = e - delta.value;
      const RowFacts facts = {1, shape_.head_dim, 0, lse};
      const double pi = probability_error(facts, true) + std::abs(z) * kEps32;
      sum.value += p * t;
      sum.error += (pi * p + kTiny32) * std::abs(t) +
                   p * (dot_error(shape_.v_head_dim) * delta.size +
                        3 * kEps32 * (std::abs(delta.value) + std::abs(e))) +
                   rounding_.lost;
      size += std::abs(p * t);
    }
  }
  sum.error += sum_error(batch_ * q_len_) * size;
  return sum;
}

}  // namespace tessera::reference
