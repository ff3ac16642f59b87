// lanes/reference/reference.cc: attention by its definition, in fp64.
//
// One query i of one head attends to its legal keys j. In these terms:
//
//   s_j = scale * (q_i . k_j)                 score
//   c_j = softcap * tanh(s_j / softcap)       capped score; s_j if softcap is 0
//   z                                         the head's sink logit, if any
//   m   = max(z, c_0, c_1, ...)
//   l   = sum_j exp(c_j - m) + exp(z - m)     at least 1 when m is finite
//   p_j = exp(c_j - m) / l                    probability of a key
//   p_z = exp(z - m) / l                      of the sink, which has no value
//   lse = m + log(l)
//   out = sum_j p_j v_j
//
// Subtracting m leaves no exponent above 0, so no finite score overflows. The
// backward pass recomputes p_j from m and l and not as exp(c_j - lse): for
// scores of 1e18 log(l) is lost in m + log(l), and two equal keys would get a
// probability of 1 each.
//
// Let g = dout_i and e = dlse_i be the gradients of the loss by out and lse.
// With the derivatives of the softmax, d p_j / d c_t = p_j ([j = t] - p_t) and
// d lse / d c_t = p_t, the chain rule gives, for a capped score,
//
//   a_j       = g . v_j                       gradient of p_j; the sink's is 0
//   mean      = sum_j p_j a_j
//   dc_j      = p_j (a_j - mean + e)
//   dz        = p_z (  0 - mean + e)
//   dc_j/ds_j = 1 - tanh(s_j / softcap)^2     or 1 if softcap is 0
//   ds_j      = dc_j * dc_j/ds_j
//   dq_i      = sum_j scale * ds_j * k_j
//   dk_j     += scale * ds_j * q_i            over queries, and heads that
//   dv_j     += p_j * g                       share this K/V head
//   dsink    += dz                            over queries and batch rows
//
// The slope of the cap is computed as 1 / cosh(x)^2, the same number without
// the cancellation of 1 - tanh^2 near saturation; cosh may overflow to inf,
// where the slope is 0.
//
// A query with no legal key has out = 0 for any inputs, so g has no effect. Its
// lse is z (then dz = e) or, without a sink, -inf (then e has no effect).
#include "lanes/reference/reference.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/trace.h"
#include "lanes/reference/softcap.h"
#include "lanes/stop.h"
#include "tessera/plan.h"

namespace tessera::reference {
namespace {

// One query of one head of one batch row.
struct Place {
  int64_t b, h, q;
};

// Checked input: no product of lengths below overflows or exceeds its array.
struct Problem {
  int64_t batch, q_len, kv_len, heads, kv_heads, head_dim, v_head_dim;
  double scale, softcap;
  const double *q, *k, *v;
  const double* sink_logits;  // null: none
  const Legality* legality;

  // The row of a query in q, out and lse, and of a key of its head in k and v.
  int64_t q_row(Place at) const { return (at.b * heads + at.h) * q_len + at.q; }
  int64_t kv_row(Place at, int64_t key) const {
    const int64_t kv_head = at.h / (heads / kv_heads);
    return (at.b * kv_heads + kv_head) * kv_len + key;
  }
  const double* q_at(Place at) const { return q + q_row(at) * head_dim; }
  const double* k_at(Place at, int64_t key) const {
    return k + kv_row(at, key) * head_dim;
  }
  const double* v_at(Place at, int64_t key) const {
    return v + kv_row(at, key) * v_head_dim;
  }
};

// Fails unless `found`, the size of array `name`, is the product of `sizes`.
Result<void> check_size(std::string_view name, std::string_view dims,
                        std::initializer_list<int64_t> sizes, size_t found) {
  int64_t want = 1;
  bool overflow = false;
  for (const int64_t n : sizes) {
    overflow |= __builtin_mul_overflow(want, n, &want);
  }
  if (!overflow && static_cast<size_t>(want) == found) return {};
  return invalid("reference", "{} must hold {} values, found {} for [{}]", name,
                 dims, found, fmt::join(sizes, ", "));
}

// Fails if the product of `sizes` exceeds `most`.
Result<void> check_limit(std::string_view rule, int64_t most,
                         std::string_view dims,
                         std::initializer_list<int64_t> sizes) {
  int64_t product = 1;
  bool overflow = false;
  for (const int64_t n : sizes) {
    overflow |= __builtin_mul_overflow(product, n, &product);
  }
  if (!overflow && product <= most) return {};
  const std::string found =
      overflow ? "more than 2^63" : fmt::to_string(product);
  return over_limit("reference", "{} must be at most {}, found {} for {} [{}]",
                    rule, most, found, dims, fmt::join(sizes, ", "));
}

Result<void> check_shape(const AttentionShape& shape) {
  const std::pair<std::string_view, int64_t> sizes[] = {
      {"heads", shape.heads},
      {"kv_heads", shape.kv_heads},
      {"head_dim", shape.head_dim},
      {"v_head_dim", shape.v_head_dim},
  };
  for (const auto& [name, n] : sizes) {
    if (n < 1) {
      return invalid("reference", "sizes must be 1 or more, found {} for {}", n,
                     name);
    }
  }
  if (shape.heads % shape.kv_heads != 0) {
    return invalid("reference",
                   "kv_heads must divide heads, found {} kv_heads for {} heads",
                   shape.kv_heads, shape.heads);
  }
  if (shape.scale && !std::isfinite(*shape.scale)) {
    return invalid("reference", "numbers must be finite, found {} for scale",
                   *shape.scale);
  }
  if (!std::isfinite(shape.softcap) || shape.softcap < 0) {
    return invalid("reference",
                   "numbers must be finite and 0 or more, found {} for softcap",
                   shape.softcap);
  }
  return {};
}

Result<Problem> check(const Request& request, const Legality& legality,
                      const AttentionShape& shape,
                      const AttentionInputs& inputs) {
  if (auto e = check_shape(shape); !e) return e.error();
  if (shape.heads % legality.heads() != 0) {
    return invalid("reference",
                   "plan heads must divide heads, found {} plan heads for {} "
                   "heads",
                   legality.heads(), shape.heads);
  }
  const AttentionShape& s = shape;
  const int64_t batch = request.batch;
  const int64_t q_len = request.q_len;
  const int64_t kv_len = request.kv_len;
  // The limits come first: a request that is too large fails without arrays.
  for (const auto& e : {
           check_limit("query-key pairs", kMaxReferencePairs,
                       "[batch, heads, q_len, kv_len]",
                       {batch, s.heads, q_len, kv_len}),
           check_limit("output values", kMaxReferenceValues,
                       "[batch, heads, q_len, v_head_dim]",
                       {batch, s.heads, q_len, s.v_head_dim}),
           check_size("q", "[batch, heads, q_len, head_dim]",
                      {batch, s.heads, q_len, s.head_dim}, inputs.q.size()),
           check_size("k", "[batch, kv_heads, kv_len, head_dim]",
                      {batch, s.kv_heads, kv_len, s.head_dim}, inputs.k.size()),
           check_size("v", "[batch, kv_heads, kv_len, v_head_dim]",
                      {batch, s.kv_heads, kv_len, s.v_head_dim},
                      inputs.v.size()),
       }) {
    if (!e) return e.error();
  }
  if (inputs.sink_logits) {
    if (auto e = check_size("sink_logits", "[heads]", {s.heads},
                            inputs.sink_logits->size());
        !e) {
      return e.error();
    }
  }
  const double scale = s.scale_or_default();
  return Problem{
      .batch = batch,
      .q_len = q_len,
      .kv_len = kv_len,
      .heads = s.heads,
      .kv_heads = s.kv_heads,
      .head_dim = s.head_dim,
      .v_head_dim = s.v_head_dim,
      .scale = scale,
      .softcap = s.softcap,
      .q = inputs.q.data(),
      .k = inputs.k.data(),
      .v = inputs.v.data(),
      .sink_logits = inputs.sink_logits ? inputs.sink_logits->data() : nullptr,
      .legality = &legality,
  };
}

// Eight running sums allow vectors, and every build adds in the same order.
double dot(const double* a, const double* b, int64_t n) {
  constexpr int64_t kLanes = 8;
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += a[i + lane] * b[i + lane];
    }
  }
  double sum = 0;
  for (const double lane_sum : sums) sum += lane_sum;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void add_scaled(double factor, const double* x, int64_t n, double* sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] += factor * x[i];
}

// The softmax of one place, with an entry for each of its legal keys.
struct Row {
  std::vector<double> scores;  // before the cap
  std::vector<double> probabilities;
  double sink_probability = 0;
  double lse = 0;
};

void softmax(const Problem& p, Place at, const std::vector<int64_t>& keys,
             Row& row) {
  const double none = -std::numeric_limits<double>::infinity();
  const double sink = p.sink_logits ? p.sink_logits[at.h] : none;
  row.scores.clear();
  row.probabilities.clear();
  if (keys.empty()) {
    row.sink_probability = 1;
    row.lse = sink;
    return;
  }
  double top = sink;
  for (const int64_t key : keys) {
    const double score = p.scale * dot(p.q_at(at), p.k_at(at, key), p.head_dim);
    const double c = capped(score, p.softcap);
    row.scores.push_back(score);
    row.probabilities.push_back(c);
    top = std::max(top, c);  // ignores a NaN; exp below gives NaN again
  }
  double sum = 0;
  for (double& c : row.probabilities) {
    c = std::exp(c - top);
    sum += c;
  }
  const double sink_exp = p.sink_logits ? std::exp(sink - top) : 0;
  sum += sink_exp;
  for (double& e : row.probabilities) e /= sum;
  row.sink_probability = sink_exp / sum;
  row.lse = top + std::log(sum);
}

// Calls visit(place, legal keys in ascending order) for batch rows, queries
// and heads in ascending order, heads innermost. Only these keys are read.
template <class Visit>
Result<void> for_each_place(const Problem& p, const StopFlag* stop,
                            Visit visit) {
  std::vector<int64_t> keys;
  const int64_t heads_per_plan_head = p.heads / p.legality->heads();
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t q = 0; q < p.q_len; ++q) {
      if (stop && stop->stopped()) {
        return lanes::check_stop(stop, "reference",
                                 fmt::format("before query {}", q));
      }
      for (int64_t h = 0; h < p.heads; ++h) {
        if (h % heads_per_plan_head == 0) {
          keys.clear();
          for (int64_t key = 0; key < p.kv_len; ++key) {
            if (p.legality->legal(b, h / heads_per_plan_head, q, key)) {
              keys.push_back(key);
            }
          }
        }
        visit(Place{b, h, q}, keys);
      }
    }
  }
  return {};
}

}  // namespace

Result<AttentionOutputs> reference_forward(const Request& request,
                                           const Legality& legality,
                                           const AttentionShape& shape,
                                           const AttentionInputs& inputs,
                                           const StopFlag* stop) {
  const TraceSpan span("reference", "forward");
  const auto checked = check(request, legality, shape, inputs);
  if (!checked) return checked.error();
  const Problem& p = *checked;

  AttentionOutputs r;
  const int64_t rows = p.batch * p.heads * p.q_len;
  r.out.resize(static_cast<size_t>(rows * p.v_head_dim));
  r.lse.resize(static_cast<size_t>(rows));
  Row row;
  const auto visit = [&](Place at, const std::vector<int64_t>& keys) {
    softmax(p, at, keys, row);
    r.pairs += static_cast<int64_t>(keys.size());
    r.lse[static_cast<size_t>(p.q_row(at))] = row.lse;
    double* out = r.out.data() + p.q_row(at) * p.v_head_dim;
    for (size_t j = 0; j < keys.size(); ++j) {
      add_scaled(row.probabilities[j], p.v_at(at, keys[j]), p.v_head_dim, out);
    }
  };
  if (auto e = for_each_place(p, stop, visit); !e) return e.error();
  return r;
}

Result<AttentionGradients> reference_backward(const Request& request,
                                              const Legality& legality,
                                              const AttentionShape& shape,
                                              const AttentionInputs& inputs,
                                              std::span<const double> dout,
                                              std::span<const double> dlse,
                                              const StopFlag* stop) {
  const TraceSpan span("reference", "backward");
  const auto checked = check(request, legality, shape, inputs);
  if (!checked) return checked.error();
  const Problem& p = *checked;
  if (auto e =
          check_size("dout", "[batch, heads, q_len, v_head_dim]",
                     {p.batch, p.heads, p.q_len, p.v_head_dim}, dout.size());
      !e) {
    return e.error();
  }
  if (!dlse.empty()) {
    if (auto e = check_size("dlse", "[batch, heads, q_len]",
                            {p.batch, p.heads, p.q_len}, dlse.size());
        !e) {
      return e.error();
    }
  }

  AttentionGradients r;
  r.dq.resize(inputs.q.size());
  r.dk.resize(inputs.k.size());
  r.dv.resize(inputs.v.size());
  if (p.sink_logits) r.dsink_logits.resize(inputs.sink_logits->size());
  Row row;
  std::vector<double> dp;  // a_j above
  const auto visit = [&](Place at, const std::vector<int64_t>& keys) {
    softmax(p, at, keys, row);
    const double* g = dout.data() + p.q_row(at) * p.v_head_dim;
    const double e = dlse.empty() ? 0 : dlse[static_cast<size_t>(p.q_row(at))];
    double* dq = r.dq.data() + p.q_row(at) * p.head_dim;

    dp.clear();
    double mean = 0;
    for (size_t j = 0; j < keys.size(); ++j) {
      dp.push_back(dot(g, p.v_at(at, keys[j]), p.v_head_dim));
      mean += row.probabilities[j] * dp[j];
    }
    for (size_t j = 0; j < keys.size(); ++j) {
      const double probability = row.probabilities[j];
      const double dc = probability * (dp[j] - mean + e);
      const double ds = dc * cap_slope(row.scores[j], p.softcap);
      double* dk = r.dk.data() + p.kv_row(at, keys[j]) * p.head_dim;
      double* dv = r.dv.data() + p.kv_row(at, keys[j]) * p.v_head_dim;
      add_scaled(p.scale * ds, p.k_at(at, keys[j]), p.head_dim, dq);
      add_scaled(p.scale * ds, p.q_at(at), p.head_dim, dk);
      add_scaled(probability, g, p.v_head_dim, dv);
    }
    if (p.sink_logits) {
      r.dsink_logits[static_cast<size_t>(at.h)] +=
          row.sink_probability * (e - mean);
    }
  };
  if (auto stopped = for_each_place(p, stop, visit); !stopped) {
    return stopped.error();
  }
  return r;
}

Result<AttentionOutputs> reference_forward(const Request& request,
                                           const Facts& facts,
                                           const AttentionShape& shape,
                                           const AttentionInputs& inputs) {
  if (auto e = check_shape(shape); !e) return e.error();
  const auto legality = Legality::bind(request, facts);
  if (!legality) return legality.error();
  return reference_forward(request, *legality, shape, inputs);
}

Result<AttentionGradients> reference_backward(const Request& request,
                                              const Facts& facts,
                                              const AttentionShape& shape,
                                              const AttentionInputs& inputs,
                                              std::span<const double> dout,
                                              std::span<const double> dlse) {
  if (auto e = check_shape(shape); !e) return e.error();
  const auto legality = Legality::bind(request, facts);
  if (!legality) return legality.error();
  return reference_backward(request, *legality, shape, inputs, dout, dlse);
}

}  // namespace tessera::reference
