// bench/attention/run.cc: the inputs of a row, its runs and their proof.
#include "bench/attention/run.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "cli/data/attention_data.h"
#include "cli/data/random_inputs.h"
#include "cli/machine.h"
#include "cli/request/routed_picks.h"
#include "cli/run/check.h"
#include "tessera/plan.h"

namespace tessera::bench {

using cli::AttentionData;
using cli::check_run;
using cli::Clusters;
using cli::fill_clustered_keys;
using cli::fill_clustered_queries;
using cli::fill_inputs;
using cli::names_router;
using cli::OtherCores;
using cli::Resolved;
using cli::route_picks;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLeastRuns = 3;
constexpr int kMostRuns = 10000;

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
  auto check = check_run(*setup.batch, setup.data, 0);
  if (!check) return check.error();
  if (!check->passed) {
    return invalid("bench",
                   "every result must be within its bound, found {:.3g} of it "
                   "for {}: {}",
                   check->max_bound_ratio, row.what->name, check->worst);
  }
  setup.times.check = std::move(*check);
  return std::move(setup.times);
}

}  // namespace tessera::bench
