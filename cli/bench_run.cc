// cli/bench_run.cc: the inputs of a row, its runs and their proof.
#include "cli/bench_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/tensor_rows.h"
#include "cli/attention_data.h"
#include "cli/machine.h"
#include "cli/random_inputs.h"
#include "cli/routed.h"
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

// All that a run needs, made before the first.
struct Setup {
  Resolved resolved;
  Request& request = resolved.request;
  std::optional<OwnedBatch> batch;
  CpuOptions options;
  AttentionData data;
  OurTimes times;

  Result<void> run(bool counts);
  Result<double> largest_error() const;
};

Result<void> Setup::run(bool counts) {
  const Clock::time_point begin = Clock::now();
  auto work = cpu_prepare(*batch, options);
  if (!work) return work.error();
  const Clock::time_point ready = Clock::now();
  auto forward =
      cpu_forward(*work, data.shape, data.forward_tensors(), options);
  if (!forward) return forward.error();
  if (data.backward) {
    auto backward =
        cpu_backward(*work, data.shape, data.backward_tensors(), options);
    if (!backward) return backward.error();
  }
  if (counts) {
    times.ms.push_back(ms_between(begin, Clock::now()));
    times.prepare_ms = std::min(times.prepare_ms, ms_between(begin, ready));
  }
  return {};
}

// The last head's output at queries spread over the row, from the definition.
Result<double> Setup::largest_error() const {
  auto legality = Legality::bind(batch->request(), batch->facts());
  if (!legality) return legality.error();
  const AttentionShape& shape = data.shape;
  const int64_t head = shape.heads - 1;
  const int64_t kv_head = shape.kv_heads - 1;
  const int64_t sampled = std::min(kSampledQueries, data.q_len);
  const auto dim = static_cast<size_t>(shape.head_dim);
  std::vector<double> q(dim), k(dim), v(dim), out(dim);
  double worst = 0;
  double largest = 0;
  for (int64_t n = 1; n <= sampled; ++n) {
    const int64_t i = n * data.q_len / sampled - 1;
    read_row(data.q.view(), 0, head, i, q.data());
    read_row(data.out.view(), 0, head, i, out.data());
    std::vector<double> sum(dim, 0);
    double weights = 0;
    // Scores of normal inputs stay far from where exp overflows in fp64.
    for (int64_t j = 0; j < data.kv_len; ++j) {
      if (!legality->legal(0, batch->plan().heads - 1, i, j)) continue;
      read_row(data.k.view(), 0, kv_head, j, k.data());
      read_row(data.v.view(), 0, kv_head, j, v.data());
      double score = 0;
      for (size_t d = 0; d < dim; ++d) score += q[d] * k[d];
      score *= data.scale();
      if (shape.softcap > 0) {
        score = shape.softcap * std::tanh(score / shape.softcap);
      }
      const double weight = std::exp(score);
      weights += weight;
      for (size_t d = 0; d < dim; ++d) sum[d] += weight * v[d];
    }
    for (size_t d = 0; d < dim; ++d) {
      const double want = sum[d] / weights;
      const double off = std::abs(out[d] - want);
      largest = std::max(largest, std::abs(want));
      // A NaN is worse than anything.
      if (!(off <= worst)) worst = std::isnan(off) ? HUGE_VAL : off;
    }
  }
  return worst / largest;
}

// A mask that names a router has q and k which are worth routing.
Result<void> take_routed_picks(Setup& setup) {
  if (!names_router(setup.request)) return {};
  auto settings = settings_of(setup.request, {});
  if (!settings) return settings.error();
  Clusters clusters;
  clusters.block = settings->block;
  AttentionData& data = setup.data;
  fill_clustered_queries(data.q, clusters);
  fill_clustered_keys(data.k, clusters);
  RouteInputs arrays;
  arrays.q = std::as_const(data.q).view();
  arrays.k = std::as_const(data.k).view();
  RouteOptions options;
  options.threads = setup.options.threads;
  double ms = 0;
  auto routed = route_picks({}, {}, arrays, options, setup.resolved, ms);
  if (!routed) return routed.error();
  return {};
}

Result<void> bind(Setup& setup, BenchRow& row, Isa isa) {
  auto mask = parse_mask(row.what->mask);
  if (!mask) return mask.error();
  const CaseShape s = shape_of(*row.what, row.tokens);
  setup.request.masks = {std::move(*mask)};
  setup.request.q_len = s.q_len;
  setup.request.kv_len = s.kv_len;
  setup.options.threads = row.threads;
  setup.options.isa = isa;
  AttentionData& data = setup.data;
  data.q_len = s.q_len;
  data.kv_len = s.kv_len;
  data.shape.heads = s.heads;
  data.shape.kv_heads = s.kv_heads;
  data.shape.head_dim = data.shape.v_head_dim = row.head_dim;
  data.shape.softcap = row.what->softcap;
  data.dtype = row.dtype;
  data.backward = row.direction == Direction::backward;
  data.allocate();
  fill_inputs(data, 0);
  if (row.what->documents) {
    setup.resolved.facts.doc_ids = packed_ids(row.tokens);
  }
  if (auto r = take_routed_picks(setup); !r) return r;
  auto batch = OwnedBatch::make(std::move(setup.request),
                                std::move(setup.resolved.facts));
  if (!batch) return batch.error();
  setup.batch = std::move(*batch);
  const Plan& plan = setup.batch->plan();
  row.pairs = std::accumulate(plan.legal_pairs.begin(), plan.legal_pairs.end(),
                              int64_t{0}) /
              plan.heads;
  setup.times.prepare_ms = std::numeric_limits<double>::infinity();
  return {};
}

}  // namespace

Result<OurTimes> measure_ours(BenchRow& row, Isa isa, double seconds) {
  Setup setup;
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
