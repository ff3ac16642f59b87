// tests/attention_case.cc: attention calls on random arrays, expected results.
#include "tests/attention_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/tensor_rows.h"
#include "kernels/backward/backward.h"
#include "kernels/decode/decode.h"
#include "kernels/forward/forward.h"
#include "lanes/cpu/decode.h"
#include "lanes/reference/reference.h"
#include "lanes/reference/rows.h"
#include "plan/make_plan.h"
#include "tessera/plan.h"

namespace tessera::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr uint8_t kNanByte = 0xff;  // a NaN if all bytes of a number are 0xff

size_t index(int64_t i) { return static_cast<size_t>(i); }

template <class T, size_t n>
T one_of(std::mt19937_64& random, const T (&values)[n]) {
  return values[random() % n];
}

// About normal, and the same on every platform: a sum of four uniform numbers.
double normal(std::mt19937_64& random) {
  const uint64_t bits = random();
  int64_t sum = 0;
  for (int i = 0; i < 4; ++i)
    sum += static_cast<int64_t>(bits >> 16 * i & 0xffff);
  return (static_cast<double>(sum) / 65536 - 2) * std::sqrt(3.0);
}

// Which queries have a legal key, which keys a legal query.
struct Live {
  std::vector<uint8_t> queries;  // [batch, heads, q_len]
  std::vector<uint8_t> keys;     // [batch, kv_heads, kv_len]
};
Live live_of(const AttentionCase& c, const Legality& legality) {
  const RandomCase& p = c.plan;
  const AttentionShape& s = c.shape;
  Live live;
  live.queries.resize(index(p.batch * s.heads * p.q_len));
  live.keys.resize(index(p.batch * s.kv_heads * p.kv_len));
  const int64_t group = s.heads / legality.heads();
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t kv = h / (s.heads / s.kv_heads);
      for (int64_t q = 0; q < p.q_len; ++q) {
        for (int64_t k = 0; k < p.kv_len; ++k) {
          if (!legality.legal(b, h / group, q, k)) continue;
          live.queries[index((b * s.heads + h) * p.q_len + q)] = 1;
          live.keys[index((b * s.kv_heads + kv) * p.kv_len + k)] = 1;
        }
      }
    }
  }
  return live;
}

std::vector<double> dense(const TensorView& t) {
  std::vector<double> all(index(t.batch * t.heads * t.tokens * t.dim));
  double* to = all.data();
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t i = 0; i < t.tokens; ++i, to += t.dim) {
        read_row(t, b, h, i, to);
      }
    }
  }
  return all;
}

std::vector<double> wide(std::span<const float> x) {
  return {x.begin(), x.end()};
}

// Sums the error bounds of dk or dv over the queries that see each key.
class KeyErrors {
 public:
  KeyErrors(size_t rows, int64_t dim)
      : dim_(index(dim)),
        size_(rows * dim_),
        error_(size_.size()),
        terms_(rows) {}

  void add(size_t row, double factor, double error, const double* x,
           double lost) {
    ++terms_[row];
    double* to_size = size_.data() + row * dim_;
    double* to_error = error_.data() + row * dim_;
    for (size_t d = 0; d < dim_; ++d) {
      to_size[d] += std::abs(factor * x[d]);
      to_error[d] += error * std::abs(x[d]) + lost;
    }
  }
  double at(size_t i) const {
    return error_[i] + reference::sum_error(terms_[i / dim_]) * size_[i];
  }

 private:
  size_t dim_;
  std::vector<double> size_, error_;
  std::vector<int64_t> terms_;
};

// The worst element of a call.
class Worst {
 public:
  void row(const char* name, const reference::Expected* want,
           std::span<const double> got, int64_t b, int64_t h, int64_t t,
           const reference::Rounding& rounding) {
    for (size_t d = 0; d < got.size(); ++d) {
      // With infinite inputs the size of an error is unknown; infinite or
      // finite must still agree.
      if (std::isinf(want[d].value) && got[d] == want[d].value) continue;
      if (std::isfinite(want[d].value) && !std::isfinite(want[d].error) &&
          std::isfinite(got[d])) {
        continue;
      }
      const reference::Compared r =
          reference::compare(want[d], got[d], rounding);
      if (r.ratio <= ratio_) continue;
      ratio_ = r.ratio;
      text_ = fmt::format(
          "{}[{}, {}, {}, {}] is {:.9g} for {:.9g}, {:.3g} times its bound",
          name, b, h, t, d, got[d], want[d].value, r.ratio);
    }
  }
  void tensor(const char* name, const std::vector<reference::Expected>& want,
              const TensorView& got) {
    std::vector<double> buffer(index(got.dim));
    const reference::Expected* at = want.data();
    for (int64_t b = 0; b < got.batch; ++b) {
      for (int64_t h = 0; h < got.heads; ++h) {
        for (int64_t t = 0; t < got.tokens; ++t, at += got.dim) {
          read_row(got, b, h, t, buffer.data());
          row(name, at, buffer, b, h, t, reference::rounding_of(got.dtype));
        }
      }
    }
  }
  void floats(const char* name, const std::vector<reference::Expected>& want,
              std::span<const float> got) {
    row(name, want.data(), wide(got), 0, 0, 0,
        reference::rounding_of(Dtype::f32));
  }
  std::optional<std::string> fault() const {
    if (ratio_ <= 1) return {};
    return text_;
  }

 private:
  double ratio_ = 0;
  std::string text_;
};

template <class Variant>
Isa isa_that_runs(std::span<const Variant> all, Dtype dtype, Isa forced) {
  Isa isa = Isa::portable;
  for (const Variant& v : all) {
    if (v.isa <= forced && (!v.bf16_only || dtype == Dtype::bf16)) isa = v.isa;
  }
  return isa;
}

}  // namespace

std::string describe(const AttentionCase& c) {
  static constexpr const char* kLayouts[] = {"bhsd", "bshd", "fused", "padded"};
  return fmt::format(
      "{}heads {}/{} dims {}/{} {} {} scale {} softcap {} sinks {} lse {} dlse "
      "{} q_size {} arrays' seed {}",
      describe(c.plan), c.shape.heads, c.shape.kv_heads, c.shape.head_dim,
      c.shape.v_head_dim, to_string(c.dtype),
      kLayouts[static_cast<int>(c.layout)],
      c.shape.scale ? fmt::to_string(*c.shape.scale) : "default",
      c.shape.softcap, c.sinks, c.lse, c.dlse, c.q_size, c.seed);
}

AttentionCase random_attention(const RandomCase& plan) {
  std::mt19937_64 random(plan.seed * 0x9E3779B97F4A7C15u + 7);
  AttentionCase c;
  c.plan = plan;
  c.seed = random();
  const auto plan_heads = static_cast<int64_t>(std::max<size_t>(
      plan.masks.size(), index(plan.picks ? plan.pick_heads : 1)));
  c.shape.kv_heads = one_of(random, {1, 1, 2});
  c.shape.heads = plan_heads * c.shape.kv_heads;
  if (plan_heads == 1) c.shape.heads *= one_of(random, {1, 2, 3});
  c.shape.head_dim = 8 * one_of(random, {1, 2, 3, 4, 5, 8, 9, 16});
  c.shape.v_head_dim = 8 * one_of(random, {1, 2, 3, 4, 6, 8, 11, 16});
  c.shape.softcap = one_of(random, {0.0, 0.0, 15.0, 30.0, 50.0});
  if (random() % 4 == 0) c.shape.scale = one_of(random, {-0.3, 0.0, 0.7, 2.0});
  c.dtype = one_of(random, {Dtype::f32, Dtype::bf16, Dtype::f16});
  c.layout = static_cast<Layout>(random() % 4);
  c.sinks = random() % 3 == 0;
  c.lse = random() % 4 != 0;
  c.dlse = random() % 2 == 0;
  c.q_size = one_of(random, {1.0, 1.0, 1.0, 30.0});
  return c;
}

AttentionArrays::AttentionArrays(const AttentionCase& from)
    : c(from), facts(c.plan.facts()), random_(c.seed) {
  request = *c.plan.request();
  const AttentionShape& s = c.shape;
  const RandomCase& p = c.plan;
  const Sizes q{s.heads, p.q_len, s.head_dim},
      o{s.heads, p.q_len, s.v_head_dim};
  const Sizes k{s.kv_heads, p.kv_len, s.head_dim};
  const Sizes v{s.kv_heads, p.kv_len, s.v_head_dim};
  const auto inputs = place({q, k, v}), gradients = place({q, k, v});
  q_ = inputs[0], k_ = inputs[1], v_ = inputs[2];
  dq_ = gradients[0], dk_ = gradients[1], dv_ = gradients[2];
  out_ = place({o})[0];
  dout_ = place({o})[0];

  const Live live = live_of(c, *Legality::bind(request, facts));
  fill(q_, c.q_size, live.queries);
  fill(k_, 1, live.keys);
  fill(v_, 1, live.keys);
  fill(dout_, 1, live.queries);
  const auto rows = index(p.batch * s.heads * p.q_len);
  lse_.resize(rows);
  if (c.sinks) {
    for (int64_t h = 0; h < s.heads; ++h) {
      sinks_.push_back(static_cast<float>(2 * normal(random_)));
      if (!c.sink_logits.empty()) {
        sinks_.back() = c.sink_logits[index(h) % c.sink_logits.size()];
      }
    }
    dsinks_.resize(sinks_.size());
  }
  for (size_t i = 0; c.dlse && i < rows; ++i) {
    // A query without a key and without a sink must not read its dlse.
    const bool moves = live.queries[i] != 0 || c.sinks;
    dlse_.push_back(moves ? static_cast<float>(normal(random_))
                          : std::numeric_limits<float>::quiet_NaN());
  }
  clear_outputs();
}

// Places a group of tensors. In the fused layout, tensors with as many tokens
// as the first one share its buffer.
std::vector<AttentionArrays::Tensor> AttentionArrays::place(
    const std::vector<Sizes>& group) {
  const int64_t batch = c.plan.batch;
  const auto width = byte_width(c.dtype);
  std::vector<Tensor> all;
  std::vector<int64_t> begin;
  int64_t fused_row = 0;
  for (const Sizes& s : group) {
    Tensor t{MutableTensorView::bhsd(nullptr, c.dtype, batch, s.heads, s.tokens,
                                     s.dim),
             buffers_.size() + all.size()};
    int64_t from = 0;
    if (c.layout == Layout::bshd || c.layout == Layout::fused) {
      t.view = MutableTensorView::bshd(nullptr, c.dtype, batch, s.heads,
                                       s.tokens, s.dim);
    }
    if (c.layout == Layout::fused && s.tokens == group[0].tokens) {
      t.buffer = buffers_.size();
      from = fused_row;
      fused_row += s.heads * s.dim;
    }
    if (c.layout == Layout::padded) {
      from = 1;
      t.view.token_stride = s.dim + 3;
      t.view.head_stride = s.tokens * t.view.token_stride + 5;
      t.view.batch_stride = s.heads * t.view.head_stride + 7;
    }
    all.push_back(t);
    begin.push_back(from);
  }
  const size_t first = buffers_.size();
  std::vector<int64_t> elements(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    MutableTensorView& v = all[i].view;
    if (c.layout == Layout::fused && all[i].buffer == first) {
      v.token_stride = fused_row;
      v.batch_stride = v.tokens * fused_row;
    }
    int64_t& end = elements[all[i].buffer - first];
    end = std::max(end, begin[i] + (v.batch - 1) * v.batch_stride +
                            (v.heads - 1) * v.head_stride +
                            (v.tokens - 1) * v.token_stride + v.dim);
  }
  for (const int64_t n : elements) {
    buffers_.emplace_back(index(n * width), kNanByte);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].view.data = buffers_[all[i].buffer].data() + begin[i] * width;
  }
  return all;
}

void AttentionArrays::fill(const Tensor& t, double size,
                           const std::vector<uint8_t>& live) {
  std::vector<double> row(index(t.view.dim));
  size_t at = 0;
  for (int64_t b = 0; b < t.view.batch; ++b) {
    for (int64_t h = 0; h < t.view.heads; ++h) {
      for (int64_t i = 0; i < t.view.tokens; ++i) {
        const bool read = live[at++] != 0;
        // A row that no legal pair reads stays NaN, or becomes Inf.
        if (!read && i % 2 == 0) continue;
        for (double& x : row) x = read ? size * normal(random_) : kInfinity;
        write_row(t.view, b, h, i, row.data());
      }
    }
  }
}

void AttentionArrays::clear_outputs() {
  for (const Tensor* t : {&out_, &dq_, &dk_, &dv_}) {
    std::ranges::fill(buffers_[t->buffer], kNanByte);
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::ranges::fill(lse_, nan);
  std::ranges::fill(dsinks_, nan);
}

std::optional<std::string> AttentionArrays::spilled() const {
  std::vector<std::vector<uint8_t>> rest = buffers_;
  const auto wipe = [&](const Tensor& t) {
    const MutableTensorView& v = t.view;
    const int64_t width = byte_width(v.dtype);
    uint8_t* const begin =
        rest[t.buffer].data() +
        (static_cast<const uint8_t*>(v.data) - buffers_[t.buffer].data());
    for (int64_t b = 0; b < v.batch; ++b) {
      for (int64_t h = 0; h < v.heads; ++h) {
        for (int64_t i = 0; i < v.tokens; ++i) {
          std::fill_n(begin + (b * v.batch_stride + h * v.head_stride +
                               i * v.token_stride) *
                                  width,
                      v.dim * width, kNanByte);
        }
      }
    }
  };
  const std::pair<const char*, const Tensor*> outputs[] = {
      {"out", &out_}, {"dq", &dq_}, {"dk", &dk_}, {"dv", &dv_}};
  for (const auto& [name, t] : outputs) wipe(*t);
  for (const auto& [name, t] : outputs) {
    if (std::ranges::any_of(rest[t->buffer],
                            [](uint8_t x) { return x != kNanByte; })) {
      return fmt::format("{} was written beside its rows", name);
    }
  }
  return {};
}

std::vector<uint8_t> AttentionArrays::bits() const {
  std::vector<uint8_t> all;
  for (const Tensor* t : {&out_, &dq_, &dk_, &dv_}) {
    const auto& b = buffers_[t->buffer];
    all.insert(all.end(), b.begin(), b.end());
  }
  for (const auto* x : {&lse_, &dsinks_}) {
    const auto* b = reinterpret_cast<const uint8_t*>(x->data());
    all.insert(all.end(), b, b + x->size() * sizeof(float));
  }
  return all;
}

void AttentionArrays::set(char array, int64_t b, int64_t h, int64_t t,
                          int64_t d, double value) {
  const Tensor& of = array == 'q'   ? q_
                     : array == 'k' ? k_
                     : array == 'v' ? v_
                                    : dout_;
  MutableTensorView one = of.view;
  one.data = static_cast<uint8_t*>(one.data) + d * byte_width(one.dtype);
  one.dim = 1;
  write_row(one, b, h, t, &value);
}

ForwardTensors AttentionArrays::forward(bool with_lse) {
  ForwardTensors t;
  t.q = as_input(q_.view), t.k = as_input(k_.view), t.v = as_input(v_.view);
  if (c.sinks) t.sink_logits = sinks_;
  t.out = out_.view;
  if (with_lse) t.lse = lse_;
  return t;
}

Gradients AttentionArrays::gradients() {
  return {as_input(dout_.view), dlse_, dq_.view, dk_.view, dv_.view, dsinks_};
}

Wanted wanted(AttentionArrays& arrays, bool flushes) {
  return wanted_of(arrays.request, arrays.facts, arrays.c.shape,
                   arrays.forward(true), arrays.gradients(), flushes);
}

Wanted wanted_of(const Request& request, const Facts& facts,
                 const AttentionShape& s, const ForwardTensors& t,
                 const Gradients& g, bool flushes) {
  const auto q = dense(t.q), k = dense(t.k), v = dense(t.v);
  const auto dout = dense(g.dout), dlse = wide(g.dlse);
  const std::vector<double> sinks =
      t.sink_logits ? wide(*t.sink_logits) : std::vector<double>{};
  reference::AttentionInputs in{q, k, v, {}};
  if (t.sink_logits) in.sink_logits = sinks;
  const auto forward = *reference::reference_forward(request, facts, s, in);
  const auto backward =
      *reference::reference_backward(request, facts, s, in, dout, dlse);

  auto oracle = *reference::RowOracle::bind(request, facts, s, t, g, flushes);
  Wanted w;
  w.out.resize(forward.out.size());
  w.lse.resize(forward.lse.size());
  w.dq.resize(backward.dq.size());
  w.dsinks.resize(sinks.size());
  const auto keys = index(t.k.batch * t.k.heads * t.k.tokens);
  KeyErrors dk(keys, s.head_dim), dv(keys, s.v_head_dim);
  std::vector<double> sink_sizes(sinks.size());
  const double lost = oracle.rounding().lost;
  reference::QueryRow row;
  reference::QueryGradient gradient;
  size_t i = 0;
  for (int64_t b = 0; b < t.q.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t x = 0; x < t.q.tokens; ++x, ++i) {
        oracle.forward(b, h, x, row);
        oracle.backward(row, gradient);
        w.lse[i].error = row.lse.error;
        for (size_t d = 0; d < row.out.error.size(); ++d) {
          w.out[i * row.out.error.size() + d].error = row.out.error[d];
        }
        for (size_t d = 0; d < gradient.dq.error.size(); ++d) {
          w.dq[i * gradient.dq.error.size() + d].error = gradient.dq.error[d];
        }
        const int64_t kv = h / (s.heads / s.kv_heads);
        for (size_t j = 0; j < row.keys.size(); ++j) {
          const auto key =
              index((b * s.kv_heads + kv) * t.k.tokens + row.keys[j]);
          dk.add(key, oracle.scale() * gradient.ds.value[j],
                 std::abs(oracle.scale()) * gradient.ds.error[j] + lost,
                 q.data() + i * index(s.head_dim), lost);
          dv.add(key, gradient.weight.value[j], gradient.weight.error[j],
                 dout.data() + i * index(s.v_head_dim), lost);
        }
        if (t.sink_logits) {
          w.dsinks[index(h)].error += gradient.sink.error;
          sink_sizes[index(h)] += std::abs(gradient.sink.value);
        }
      }
    }
  }
  for (size_t at = 0; at < w.out.size(); ++at)
    w.out[at].value = forward.out[at];
  for (size_t at = 0; at < w.lse.size(); ++at)
    w.lse[at].value = forward.lse[at];
  for (size_t at = 0; at < w.dq.size(); ++at) w.dq[at].value = backward.dq[at];
  for (size_t at = 0; at < backward.dk.size(); ++at) {
    w.dk.push_back({backward.dk[at], dk.at(at)});
  }
  for (size_t at = 0; at < backward.dv.size(); ++at) {
    w.dv.push_back({backward.dv[at], dv.at(at)});
  }
  for (size_t h = 0; h < w.dsinks.size(); ++h) {
    w.dsinks[h].value = backward.dsink_logits[h];
    w.dsinks[h].error +=
        reference::sum_error(t.q.batch * t.q.tokens) * sink_sizes[h];
  }
  return w;
}

std::optional<std::string> values_fault(
    const char* name, const std::vector<reference::Expected>& want,
    std::span<const float> got) {
  if (want.size() != got.size()) {
    return fmt::format("{} has {} values for {}", name, got.size(),
                       want.size());
  }
  Worst worst;
  worst.floats(name, want, got);
  return worst.fault();
}

std::optional<std::string> forward_fault(const Wanted& want,
                                         const ForwardTensors& t) {
  Worst worst;
  worst.tensor("out", want.out, as_input(t.out));
  if (!t.lse.empty()) worst.floats("lse", want.lse, t.lse);
  return worst.fault();
}

std::optional<std::string> backward_fault(const AttentionCase& c,
                                          const Wanted& want,
                                          const Gradients& g) {
  Worst worst;
  worst.tensor("dq", want.dq, as_input(g.dq));
  worst.tensor("dk", want.dk, as_input(g.dk));
  worst.tensor("dv", want.dv, as_input(g.dv));
  if (c.sinks) worst.floats("dsink_logits", want.dsinks, g.dsink_logits);
  return worst.fault();
}

std::vector<float> extreme_sinks() {
  constexpr auto kMaxFloat = std::numeric_limits<float>::max();
  return {3e38F,      -3e38F,  kMaxFloat,
          -kMaxFloat, 2.4e38F, -std::numeric_limits<float>::infinity(),
          1e6F,       -1e6F};
}

std::optional<std::string> cpu_fault(AttentionArrays& arrays,
                                     const Wanted& want, Isa isa, int threads) {
  const AttentionCase& c = arrays.c;
  const auto plan = plan::make_plan(arrays.request, arrays.facts);
  if (!plan) return plan.error().message;
  CpuOptions options;
  options.isa = isa;
  options.threads = threads;
  const auto work = cpu::cpu_prepare(
      *BorrowedBatch::make(arrays.request, arrays.facts), options);
  if (!work) return work.error().message;
  const auto fail = [&](const std::string& text) {
    return fmt::format("{}: {}", to_string(isa), text);
  };

  arrays.clear_outputs();
  const int64_t group = c.shape.heads / plan->heads;
  int64_t pairs = 0;
  for (const int64_t n : plan->legal_pairs) pairs += n * group;
  const auto counted = [&](const cpu::CpuRun& run, Isa ran) {
    const int64_t tiles =
        static_cast<int64_t>(plan->forward.entries.size()) * group;
    const Worklist& w = plan->forward;
    return run.isa == ran && run.threads == threads && run.tiles_run == tiles &&
           run.tiles_skipped == w.lists * w.rows * w.columns * group - tiles;
  };
  const auto ran =
      cpu::cpu_forward(*work, c.shape, arrays.forward(c.lse), options);
  if (!ran) return fail(ran.error().message);
  const Isa of_forward =
      plan->q_len <= cpu::kDecodeQueries
          ? isa_that_runs(kernels::decode_variants(), c.dtype, isa)
          : isa_that_runs(kernels::forward_variants(), c.dtype, isa);
  if (!counted(*ran, of_forward) || ran->pairs_run < pairs) {
    return fail("the counts of forward are wrong");
  }
  if (auto f = forward_fault(want, arrays.forward(c.lse))) return fail(*f);
  if (auto f = arrays.spilled()) return fail(*f);
  if (!c.lse) {
    if (auto e =
            cpu::cpu_forward(*work, c.shape, arrays.forward(true), options);
        !e) {
      return fail(e.error().message);
    }
    if (auto f = forward_fault(want, arrays.forward(true))) return fail(*f);
  }
  const auto back = cpu::cpu_backward(*work, c.shape, arrays.forward(true),
                                      arrays.gradients(), options);
  if (!back) return fail(back.error().message);
  if (!counted(*back,
               isa_that_runs(kernels::backward_variants(), c.dtype, isa))) {
    return fail("the counts of backward are wrong");
  }
  if (auto f = backward_fault(c, want, arrays.gradients())) return fail(*f);
  if (auto f = arrays.spilled()) return fail(*f);
  return {};
}

std::optional<std::string> cpu_fault(const AttentionCase& c) {
  AttentionArrays arrays(c);
  const Wanted want = wanted(arrays);
  for (const Isa isa : machine_isas()) {
    if (auto f = cpu_fault(arrays, want, isa, 1)) return f;
  }
  return {};
}

}  // namespace tessera::testing
