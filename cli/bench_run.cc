// cli/bench_run.cc: the inputs of a row, its runs and their proof.
#include "cli/bench_run.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "cli/machine.h"
#include "tessera/legal.h"
#include "tessera/plan.h"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLeastRuns = 3;
constexpr int kMostRuns = 10000;
constexpr int64_t kSampledQueries = 16;

double ms_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double, std::milli>(b - a).count();
}

// One array in the row's dtype.
struct Tensor {
  Dtype dtype = Dtype::f32;
  int64_t heads = 0, tokens = 0, dim = 0;
  std::vector<std::byte> bytes;

  Tensor(Dtype type, int64_t n_heads, int64_t n_tokens, int64_t n_dim)
      : dtype(type),
        heads(n_heads),
        tokens(n_tokens),
        dim(n_dim),
        bytes(static_cast<size_t>(heads * tokens * dim * byte_width(type))) {}

  void randomize(uint64_t seed) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<float> normal;
    const int64_t n = heads * tokens * dim;
    for (int64_t i = 0; i < n; ++i) set(i, normal(engine));
  }
  void set(int64_t i, float value) {
    if (dtype == Dtype::f32) {
      std::memcpy(bytes.data() + i * 4, &value, 4);
      return;
    }
    // To the nearest bfloat16, ties to even.
    uint32_t bits = std::bit_cast<uint32_t>(value);
    bits += 0x7fff + ((bits >> 16) & 1);
    const auto half = static_cast<uint16_t>(bits >> 16);
    std::memcpy(bytes.data() + i * 2, &half, 2);
  }
  double get(int64_t head, int64_t token, int64_t d) const {
    const int64_t i = (head * tokens + token) * dim + d;
    if (dtype == Dtype::f32) {
      float value = 0;
      std::memcpy(&value, bytes.data() + i * 4, 4);
      return value;
    }
    uint16_t half = 0;
    std::memcpy(&half, bytes.data() + i * 2, 2);
    return std::bit_cast<float>(uint32_t{half} << 16);
  }
  TensorView view() const {
    return TensorView::bhsd(bytes.data(), dtype, 1, heads, tokens, dim);
  }
  MutableTensorView mutable_view() {
    return MutableTensorView::bhsd(bytes.data(), dtype, 1, heads, tokens, dim);
  }
};

// All that a run needs, made before the first.
struct Setup {
  Request request;
  std::vector<int32_t> ids;
  Facts facts;
  Plan plan;
  AttentionShape shape;
  bool backward = false;
  CpuOptions options;
  Tensor q, k, v, out, dout, dq, dk, dv;
  std::vector<float> lse;
  OurTimes times;

  Setup(Dtype dtype, const CaseShape& s, int64_t dim, bool both)
      : backward(both),
        q(dtype, s.heads, s.q_len, dim),
        k(dtype, s.kv_heads, s.kv_len, dim),
        v(dtype, s.kv_heads, s.kv_len, dim),
        out(dtype, s.heads, s.q_len, dim),
        dout(dtype, s.heads, both ? s.q_len : 0, dim),
        dq(dtype, s.heads, both ? s.q_len : 0, dim),
        dk(dtype, s.kv_heads, both ? s.kv_len : 0, dim),
        dv(dtype, s.kv_heads, both ? s.kv_len : 0, dim),
        lse(both ? static_cast<size_t>(s.heads * s.q_len) : 0) {
    times.prepare_ms = std::numeric_limits<double>::infinity();
  }

  Result<void> run(bool counts);
  Result<double> largest_error() const;
};

Result<void> Setup::run(bool counts) {
  const Clock::time_point begin = Clock::now();
  auto work = cpu_prepare(request, facts, plan, options);
  if (!work) return work.error();
  const Clock::time_point ready = Clock::now();
  const ForwardTensors forward = {q.view(), k.view(),           v.view(),
                                  {},       out.mutable_view(), lse};
  if (auto ran = cpu_forward(*work, shape, forward, options); !ran) {
    return ran.error();
  }
  if (backward) {
    BackwardTensors t;
    t.q = q.view();
    t.k = k.view();
    t.v = v.view();
    t.out = out.view();
    t.dout = dout.view();
    t.lse = lse;
    t.dq = dq.mutable_view();
    t.dk = dk.mutable_view();
    t.dv = dv.mutable_view();
    if (auto ran = cpu_backward(*work, shape, t, options); !ran) {
      return ran.error();
    }
  }
  if (counts) {
    times.ms.push_back(ms_between(begin, Clock::now()));
    times.prepare_ms = std::min(times.prepare_ms, ms_between(begin, ready));
  }
  return {};
}

// The last head's output at queries spread over the row, from the definition.
Result<double> Setup::largest_error() const {
  auto legality = Legality::bind(request, facts);
  if (!legality) return legality.error();
  const int64_t head = shape.heads - 1;
  const int64_t kv_head = shape.kv_heads - 1;
  const int64_t sampled = std::min(kSampledQueries, q.tokens);
  const double scale = 1 / std::sqrt(static_cast<double>(q.dim));
  double worst = 0;
  double largest = 0;
  for (int64_t n = 1; n <= sampled; ++n) {
    const int64_t i = n * q.tokens / sampled - 1;
    std::vector<double> sum(static_cast<size_t>(v.dim), 0);
    double weights = 0;
    // Scores of normal inputs stay far from where exp overflows in fp64.
    for (int64_t j = 0; j < k.tokens; ++j) {
      if (!legality->legal(0, 0, i, j)) continue;
      double score = 0;
      for (int64_t d = 0; d < q.dim; ++d) {
        score += q.get(head, i, d) * k.get(kv_head, j, d);
      }
      score *= scale;
      if (shape.softcap > 0) {
        score = shape.softcap * std::tanh(score / shape.softcap);
      }
      const double weight = std::exp(score);
      weights += weight;
      for (int64_t d = 0; d < v.dim; ++d) {
        sum[static_cast<size_t>(d)] += weight * v.get(kv_head, j, d);
      }
    }
    for (int64_t d = 0; d < v.dim; ++d) {
      const double want = sum[static_cast<size_t>(d)] / weights;
      const double off = std::abs(out.get(head, i, d) - want);
      largest = std::max(largest, std::abs(want));
      // A NaN is worse than anything.
      if (!(off <= worst)) worst = std::isnan(off) ? HUGE_VAL : off;
    }
  }
  return worst / largest;
}

Result<void> bind(Setup& setup, BenchRow& row, Isa isa) {
  auto mask = parse_mask(row.what->mask);
  if (!mask) return mask.error();
  setup.request.masks = {std::move(*mask)};
  setup.request.q_len = setup.q.tokens;
  setup.request.kv_len = setup.k.tokens;
  if (row.what->documents) {
    setup.ids = packed_ids(row.tokens);
    setup.facts.doc_ids = setup.ids;
  }
  auto plan = make_plan(setup.request, setup.facts);
  if (!plan) return plan.error();
  setup.plan = std::move(*plan);
  row.pairs = setup.plan.legal_pairs[0];
  setup.shape.heads = setup.q.heads;
  setup.shape.kv_heads = setup.k.heads;
  setup.shape.head_dim = setup.shape.v_head_dim = row.head_dim;
  setup.shape.softcap = row.what->softcap;
  setup.options.threads = row.threads;
  setup.options.isa = isa;
  setup.q.randomize(1);
  setup.k.randomize(2);
  setup.v.randomize(3);
  setup.dout.randomize(4);
  return {};
}

}  // namespace

Result<OurTimes> measure_ours(BenchRow& row, Isa isa, double seconds) {
  Setup setup(row.dtype, shape_of(*row.what, row.tokens), row.head_dim,
              row.direction == Direction::backward);
  if (auto r = bind(setup, row, isa); !r) return r.error();
  // The first run touches the memory and starts the threads.
  if (auto r = setup.run(/*counts=*/false); !r) return r.error();
  const OtherCores others;
  const Clock::time_point start = Clock::now();
  for (int run = 0; run < kMostRuns; ++run) {
    const double spent = ms_between(start, Clock::now()) / 1e3;
    if (run >= kLeastRuns && spent > seconds) break;
    if (run > 0 && spent > 4 * seconds) break;
    if (auto r = setup.run(/*counts=*/true); !r) return r.error();
  }
  setup.times.other_cores = others.so_far();
  auto error = setup.largest_error();
  if (!error) return error.error();
  const double allowed = row.dtype == Dtype::f32 ? 1e-4 : 3e-2;
  if (!(*error <= allowed)) {
    return invalid("bench",
                   "the output must be within {} of its largest value, found "
                   "{:.3g} for {}",
                   allowed, *error, row.what->name);
  }
  setup.times.error = *error;
  return std::move(setup.times);
}

}  // namespace tessera::cli
