// lanes/reference/judge.cc: judges a lane's results, all rows or a sample.
#include "lanes/reference/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "base/tensor_rows.h"
#include "base/trace.h"
#include "lanes/reference/rows.h"
#include "plan/batch_state.h"

namespace tessera::reference {
namespace {

constexpr const char* kWhere = "judge";
constexpr int64_t kMaxFullPairs = int64_t{1} << 24;
constexpr int64_t kMaxFullValues = int64_t{1} << 24;  // of q, k, v or out

using Place = std::tuple<int64_t, int64_t, int64_t>;  // batch row, head, token

// Every place of [batch, heads, tokens], or `count` of them, ascending.
std::vector<Place> places(int64_t batch, int64_t heads, int64_t tokens,
                          int64_t count, uint64_t seed) {
  const int64_t all = batch * heads * tokens;
  const auto place = [&](int64_t i) {
    return Place{i / tokens / heads, i / tokens % heads, i % tokens};
  };
  std::vector<Place> out;
  if (count == 0 || count >= all) {
    out.reserve(static_cast<size_t>(all));
    for (int64_t i = 0; i < all; ++i) out.push_back(place(i));
    return out;
  }
  std::set<int64_t> chosen = {0, all - 1};
  std::mt19937_64 random(seed);  // the standard defines its sequence
  while (static_cast<int64_t>(chosen.size()) < count) {
    chosen.insert(static_cast<int64_t>(random() % static_cast<uint64_t>(all)));
  }
  for (const int64_t i : chosen) out.push_back(place(i));
  return out;
}

class Tally {
 public:
  explicit Tally(Verdict& verdict) : verdict_(verdict) {}

  void element(const char* name, const Place& at, int64_t d,
               const Expected& want, double got, const Rounding& rounding) {
    const Compared j = compare(want, got, rounding);
    verdict_.max_error = std::max(verdict_.max_error, j.error);
    if (j.ratio <= verdict_.max_ratio && !verdict_.worst.empty()) return;
    verdict_.max_ratio = std::max(verdict_.max_ratio, j.ratio);
    const auto& [b, h, t] = at;
    verdict_.worst =
        fmt::format("{}[{}, {}, {}{}] is {:.9g} for {:.9g}", name, b, h, t,
                    d < 0 ? "" : fmt::format(", {}", d), got, want.value);
  }

  void row(const char* name, const TensorView& got, const Place& at,
           const RowValues& want) {
    const auto& [b, h, t] = at;
    buffer_.resize(want.value.size());
    read_row(got, b, h, t, buffer_.data());
    const Rounding rounding = rounding_of(got.dtype);
    for (size_t d = 0; d < buffer_.size(); ++d) {
      element(name, at, static_cast<int64_t>(d), {want.value[d], want.error[d]},
              buffer_[d], rounding);
    }
  }

 private:
  Verdict& verdict_;
  std::vector<double> buffer_;
};

class Ticker {
 public:
  Ticker(const JudgeOptions& options, size_t total)
      : options_(options), total_(total) {}
  void tick() {
    if (options_.progress && ++done_ % 16 == 0) {
      options_.progress(static_cast<double>(done_) /
                        static_cast<double>(total_));
    }
  }

 private:
  const JudgeOptions& options_;
  size_t total_;
  size_t done_ = 0;
};

// Sums of gradients over the queries that see each key; one row for each key.
class KeySums {
 public:
  KeySums(int64_t rows, int64_t dim)
      : dim_(static_cast<size_t>(dim)),
        value_(static_cast<size_t>(rows) * dim_),
        error_(value_.size()),
        size_(value_.size()),
        terms_(static_cast<size_t>(rows)) {}

  // Each product may lose `lost`.
  void add(size_t row, double factor, double factor_error, const double* x,
           double lost) {
    ++terms_[row];
    for (size_t d = 0; d < dim_; ++d) {
      const size_t at = row * dim_ + d;
      value_[at] += factor * x[d];
      error_[at] += factor_error * std::abs(x[d]) + lost;
      size_[at] += std::abs(factor * x[d]);
    }
  }

  void row(size_t row, RowValues& out) const {
    out.reset(static_cast<int64_t>(dim_));
    for (size_t d = 0; d < dim_; ++d) {
      const size_t at = row * dim_ + d;
      out.value[d] = value_[at];
      out.error[d] = error_[at] + sum_error(terms_[row]) * size_[at];
    }
  }

 private:
  size_t dim_;
  std::vector<double> value_, error_, size_;
  std::vector<int64_t> terms_;
};

// Adds one query's terms to the gradients of the keys that it sees. `first_key`
// is the row of the first key of its K/V head.
void add_to_keys(RowOracle& oracle, const Place& at, const QueryRow& row,
                 const QueryGradient& gradient, int64_t first_key,
                 KeySums& dk_sums, KeySums& dv_sums) {
  const auto& [b, h, q] = at;
  const double* x = oracle.query(b, h, q);
  const double* g = oracle.dout(b, h, q);
  const double lost = oracle.rounding().lost;
  for (size_t j = 0; j < row.keys.size(); ++j) {
    const auto key = static_cast<size_t>(first_key + row.keys[j]);
    dk_sums.add(key, oracle.scale() * gradient.ds.value[j],
                std::abs(oracle.scale()) * gradient.ds.error[j] + lost, x,
                lost);
    dv_sums.add(key, gradient.weight.value[j], gradient.weight.error[j], g,
                lost);
  }
}

}  // namespace

bool can_judge_all(const Request& request, const AttentionShape& shape) {
  const auto product = [](std::initializer_list<int64_t> sizes) {
    double p = 1;
    for (const int64_t n : sizes) p *= static_cast<double>(n);
    return p;
  };
  const int64_t dim = std::max(shape.head_dim, shape.v_head_dim);
  const int64_t tokens = std::max(request.q_len, request.kv_len);
  return product({request.batch, shape.heads, request.q_len, request.kv_len}) <=
             static_cast<double>(kMaxFullPairs) &&
         product({request.batch, shape.heads, tokens, dim}) <=
             static_cast<double>(kMaxFullValues);
}

Result<Verdict> judge_forward(const Batch& batch, const AttentionShape& shape,
                              const ForwardTensors& tensors,
                              const JudgeOptions& options) {
  auto read = plan::read_batch(batch, kWhere);
  if (!read) return read.error();
  return judge_declared_forward(batch.request(), batch.facts(), shape, tensors,
                                options);
}

Result<Verdict> judge_backward(const Batch& batch, const AttentionShape& shape,
                               const ForwardTensors& tensors,
                               const Gradients& gradients,
                               const JudgeOptions& options) {
  auto read = plan::read_batch(batch, kWhere);
  if (!read) return read.error();
  return judge_declared_backward(batch.request(), batch.facts(), shape, tensors,
                                 gradients, options);
}

Result<Verdict> judge_declared_forward(const Request& request,
                                       const Facts& facts,
                                       const AttentionShape& shape,
                                       const ForwardTensors& tensors,
                                       const JudgeOptions& options) {
  const TraceSpan span("check", "forward");
  auto oracle = RowOracle::bind(request, facts, shape, tensors, {},
                                options.flushes, options.rounded_sum);
  if (!oracle) return oracle.error();
  const TensorView out = as_input(tensors.out);
  const std::vector<Place> rows =
      places(request.batch, shape.heads, request.q_len, options.query_rows,
             options.seed);
  Verdict verdict;
  Tally tally(verdict);
  Ticker ticker(options, rows.size());
  QueryRow row;
  for (const Place& at : rows) {
    const auto& [b, h, q] = at;
    oracle->forward(b, h, q, row);
    tally.row("out", out, at, row.out);
    if (!tensors.lse.empty()) {
      const int64_t i = (b * shape.heads + h) * request.q_len + q;
      tally.element("lse", at, -1, row.lse, tensors.lse[static_cast<size_t>(i)],
                    rounding_of(Dtype::f32));
    }
    ++verdict.rows;
    ticker.tick();
  }
  return verdict;
}

Result<Verdict> judge_declared_backward(const Request& request,
                                        const Facts& facts,
                                        const AttentionShape& shape,
                                        const ForwardTensors& tensors,
                                        const Gradients& gradients,
                                        const JudgeOptions& options) {
  const TraceSpan span("check", "backward");
  auto bound = RowOracle::bind(request, facts, shape, tensors, gradients,
                               options.flushes, options.rounded_sum);
  if (!bound) return bound.error();
  RowOracle& oracle = *bound;
  const bool full = options.query_rows == 0;
  const std::vector<Place> queries =
      places(request.batch, shape.heads, request.q_len, options.query_rows,
             options.seed);
  const std::vector<Place> keys = places(
      request.batch, shape.kv_heads, request.kv_len,
      full ? 0 : std::max<int64_t>(1, options.key_rows), options.seed + 1);
  Verdict verdict;
  Tally tally(verdict);
  Ticker ticker(options, queries.size() + (full ? 0 : keys.size()));
  const TensorView dq = as_input(gradients.dq);
  const TensorView dk = as_input(gradients.dk);
  const TensorView dv = as_input(gradients.dv);

  const int64_t key_rows =
      full ? request.batch * shape.kv_heads * request.kv_len : 0;
  KeySums dk_sums(key_rows, shape.head_dim);
  KeySums dv_sums(key_rows, shape.v_head_dim);
  std::vector<Expected> sinks(static_cast<size_t>(shape.heads));
  std::vector<double> sink_sizes(sinks.size());
  QueryRow row;
  QueryGradient gradient;
  for (const Place& at : queries) {
    const auto& [b, h, q] = at;
    oracle.forward(b, h, q, row);
    oracle.backward(row, gradient);
    tally.row("dq", dq, at, gradient.dq);
    ++verdict.rows;
    ticker.tick();
    if (!full) continue;
    const int64_t kv_head = h / (shape.heads / shape.kv_heads);
    const int64_t first_key = (b * shape.kv_heads + kv_head) * request.kv_len;
    add_to_keys(oracle, at, row, gradient, first_key, dk_sums, dv_sums);
    const auto head = static_cast<size_t>(h);
    sinks[head].value += gradient.sink.value;
    sinks[head].error += gradient.sink.error;
    sink_sizes[head] += std::abs(gradient.sink.value);
  }
  RowValues want_dk, want_dv;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto& [b, h, key] = keys[i];
    if (full) {
      dk_sums.row(i, want_dk);
      dv_sums.row(i, want_dv);
    } else {
      oracle.key_gradient(b, h, key, want_dk, want_dv);
      ticker.tick();
    }
    tally.row("dk", dk, keys[i], want_dk);
    tally.row("dv", dv, keys[i], want_dv);
    ++verdict.rows;
  }
  if (!tensors.sink_logits) return verdict;
  for (int64_t h = 0; h < shape.heads; ++h) {
    const auto at = static_cast<size_t>(h);
    Expected want = sinks[at];
    want.error += sum_error(request.batch * request.q_len) * sink_sizes[at];
    if (!full) want = oracle.sink_gradient(h);
    tally.element("dsink_logits", {0, h, 0}, -1, want,
                  gradients.dsink_logits[at], rounding_of(Dtype::f32));
  }
  return verdict;
}

}  // namespace tessera::reference
