// lanes/sinks.cc: adds a sink, one more score z without a value, to the results
// of attention without sinks.
//
// With a = exp(lse) / (exp(lse) + exp(z)), joined = a out for each query, so
//   dout'  = a dout                gradient of out
//   dlse'  = dlse + (1 - a) (dout . joined)
//   dz    -= (1 - a) (dout . joined)
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/tensor_rows.h"
#include "tessera/attention.h"

namespace tessera {
namespace {

// The keys' share `a` of the softmax; 0 for a query without a legal key.
double share_of(float lse, float sink) {
  if (lse == -std::numeric_limits<float>::infinity()) return 0;
  return 1 / (1 + std::exp(double{sink} - double{lse}));
}

Result<void> check_tensor(std::string_view name, const TensorView& t,
                          const TensorView& out) {
  const bool fits = t.batch == out.batch && t.heads == out.heads &&
                    t.tokens == out.tokens && t.dim == out.dim &&
                    t.dtype == out.dtype;
  if (fits && is_float_dtype(t.dtype) && t.data != nullptr) return {};
  return invalid("sinks",
                 "{} must be there, F32, BF16 or F16, and all of one shape "
                 "and dtype, found [{}, {}, {}, {}] of {}{}",
                 name, t.batch, t.heads, t.tokens, t.dim, to_string(t.dtype),
                 t.data == nullptr ? ", nowhere" : "");
}

Result<void> check_floats(std::string_view name, std::span<const float> values,
                          int64_t want, std::string_view shape) {
  if (static_cast<int64_t>(values.size()) == want) return {};
  return invalid("sinks", "{} must hold {} = {} values, found {}", name, shape,
                 want, values.size());
}

Result<void> check(const TensorView& out, std::span<const float> lse,
                   std::span<const float> sink_logits) {
  if (auto e = check_tensor("out", out, out); !e) return e;
  if (auto e = check_floats("lse", lse, out.batch * out.heads * out.tokens,
                            "[batch, heads, tokens]");
      !e) {
    return e;
  }
  return check_floats("sink_logits", sink_logits, out.heads, "[heads]");
}

struct Extent {
  int64_t count, stride;  // elements
  bool operator==(const Extent& other) const {
    return count == other.count && (count < 2 || stride == other.stride);
  }
};

std::array<Extent, 3> extents_of(const TensorView& t) {
  return {{{t.batch, t.batch_stride},
           {t.heads, t.head_stride},
           {t.tokens, t.token_stride}}};
}

// The address range [begin, end) of a tensor; strides may be negative.
std::pair<intptr_t, intptr_t> range_of(const TensorView& t) {
  int64_t low = 0, high = t.dim;
  for (const auto& [count, stride] : extents_of(t)) {
    if (count > 1) (stride < 0 ? low : high) += (count - 1) * stride;
  }
  const auto at = reinterpret_cast<intptr_t>(t.data);
  return {at + low * byte_width(t.dtype), at + high * byte_width(t.dtype)};
}

// Fails if the tensors overlap without being the same: a row is written before
// later rows are read.
Result<void> check_apart(std::string_view name, const TensorView& written,
                         std::string_view of, const TensorView& read) {
  const auto [begin, end] = range_of(written);
  const auto [from, to] = range_of(read);
  if (end <= from || to <= begin) return {};
  if (written.data == read.data && extents_of(written) == extents_of(read)) {
    return {};
  }
  return invalid("sinks",
                 "{} must be {} itself or lie before or behind it, found one "
                 "that meets it",
                 name, of);
}

// Calls visit(b, h, t, index in [batch, heads, tokens]) for every query.
template <class Visit>
void each_query(const TensorView& out, const Visit& visit) {
  size_t at = 0;
  for (int64_t b = 0; b < out.batch; ++b) {
    for (int64_t h = 0; h < out.heads; ++h) {
      for (int64_t t = 0; t < out.tokens; ++t) visit(b, h, t, at++);
    }
  }
}

}  // namespace

Result<void> join_sinks(const TensorView& out, std::span<const float> lse,
                        std::span<const float> sink_logits,
                        const MutableTensorView& joined) {
  if (auto e = check(out, lse, sink_logits); !e) return e;
  if (auto e = check_tensor("joined", as_input(joined), out); !e) return e;
  if (auto e = check_apart("joined", as_input(joined), "out", out); !e) {
    return e;
  }
  std::vector<double> row(static_cast<size_t>(out.dim));
  each_query(out, [&](int64_t b, int64_t h, int64_t t, size_t at) {
    const double a = share_of(lse[at], sink_logits[static_cast<size_t>(h)]);
    read_row(out, b, h, t, row.data());
    for (double& x : row) x *= a;
    write_row(joined, b, h, t, row.data());
  });
  return {};
}

Result<void> sink_gradients(const TensorView& joined,
                            std::span<const float> lse,
                            std::span<const float> sink_logits,
                            const TensorView& dout, std::span<const float> dlse,
                            const SinkGradients& to) {
  if (auto e = check(joined, lse, sink_logits); !e) return e;
  const auto queries = static_cast<int64_t>(lse.size());
  for (const auto& e :
       {check_tensor("dout", dout, joined),
        check_tensor("dout to write", as_input(to.dout), joined),
        check_floats("dlse", dlse, dlse.empty() ? 0 : queries,
                     "[batch, heads, tokens] or nothing"),
        check_floats("dlse to write", to.dlse, queries,
                     "[batch, heads, tokens]"),
        check_floats("dsink_logits", to.dsink_logits, joined.heads,
                     "[heads]")}) {
    if (!e) return e;
  }
  const TensorView written = as_input(to.dout);
  for (const auto& e :
       {check_apart("dout to write", written, "dout", dout),
        check_apart("dout to write", written, "joined", joined)}) {
    if (!e) return e;
  }
  std::vector<double> row(static_cast<size_t>(joined.dim)), g(row.size());
  std::vector<double> sums(to.dsink_logits.size());
  each_query(joined, [&](int64_t b, int64_t h, int64_t t, size_t at) {
    const auto head = static_cast<size_t>(h);
    const double a = share_of(lse[at], sink_logits[head]);
    to.dlse[at] = dlse.empty() ? 0.0F : dlse[at];
    read_row(dout, b, h, t, g.data());
    if (lse[at] == -std::numeric_limits<float>::infinity()) {
      std::fill(g.begin(), g.end(), 0.0);  // dout may be NaN here
    } else {
      read_row(joined, b, h, t, row.data());
      double dot = 0;
      for (size_t d = 0; d < row.size(); ++d) dot += g[d] * row[d];
      const double moved = (1 - a) * dot;
      to.dlse[at] = static_cast<float>(double{to.dlse[at]} + moved);
      sums[head] -= moved;
      for (double& x : g) x *= a;
    }
    write_row(to.dout, b, h, t, g.data());
  });
  std::transform(sums.begin(), sums.end(), to.dsink_logits.begin(),
                 [](double sum) { return static_cast<float>(sum); });
  return {};
}

}  // namespace tessera
