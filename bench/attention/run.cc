// bench/attention/run.cc: makes the inputs of a row, runs and checks it.
#include "bench/attention/run.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "base/timed.h"
#include "base/turns.h"
#include "cli/machine.h"
#include "cli/progress.h"
#include "receipt/machine.h"
#include "request/attention_data.h"
#include "request/clustered_inputs.h"
#include "request/pick_source.h"
#include "request/random_inputs.h"
#include "run/judge_run.h"
#include "tessera/session.h"

namespace tessera::bench {

using cli::OtherCores;
using cli::Progress;
using request::AttentionData;
using request::Clusters;
using request::fill_clustered_keys;
using request::fill_clustered_queries;
using request::fill_inputs;
using request::names_router;
using request::read_route_settings;

namespace {

struct OneRun {
  double ms = 0, prepare_ms = 0;
};

// All inputs of a run, made before the first one.
struct Setup {
  std::optional<Session> session;
  std::optional<OwnedBatch> batch;
  AttentionData data;

  Result<OneRun> run();
};

Result<OneRun> Setup::run() {
  OneRun out;
  const auto begin = std::chrono::steady_clock::now();
  auto ready = session->prepare(*batch, data.call());
  if (!ready) return ready.error();
  out.prepare_ms = ms_since(begin);
  auto saved = ready->forward(data.forward_tensors());
  if (!saved) return saved.error();
  if (data.backward) {
    auto e = ready->backward(*saved, data.gradients());
    if (!e) return e.error();
  }
  out.ms = ms_since(begin);
  return out;
}

// For a mask with a router, q and k are made so that routing matters.
Result<OwnedBatch> make_batch(Request request, OwnedFacts facts,
                              AttentionData& data, int threads) {
  if (!names_router(request)) {
    return OwnedBatch::make(std::move(request), std::move(facts));
  }
  auto settings = read_route_settings({}, request);
  if (!settings) return settings.error();
  Clusters clusters;
  clusters.block = settings->block;
  fill_clustered_queries(data.q, clusters);
  fill_clustered_keys(data.k, clusters);
  RouteInputs arrays;
  arrays.q = std::as_const(data.q).view();
  arrays.k = std::as_const(data.k).view();
  RouteOptions options;
  options.threads = threads;
  options.memory = receipt::available_memory();
  return OwnedBatch::route(std::move(request), std::move(facts), arrays,
                           *settings, options);
}

Result<void> bind(Setup& setup, BenchRow& row, Isa isa) {
  SessionOptions options;
  options.lane = LaneId::cpu;
  options.cpu.threads = row.threads;
  options.cpu.isa = isa;
  auto session = Session::open(std::move(options));
  if (!session) return session.error();
  setup.session = std::move(*session);
  auto mask = parse_mask(row.what->mask);
  if (!mask) return mask.error();
  const CaseShape s = shape_of(*row.what, row.tokens);
  Request request;
  request.masks = {std::move(*mask)};
  request.q_len = s.q_len;
  request.kv_len = s.kv_len;
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
  OwnedFacts facts;
  if (row.what->documents) facts.doc_ids = packed_ids(row.tokens);
  auto batch =
      make_batch(std::move(request), std::move(facts), data, row.threads);
  if (!batch) return batch.error();
  setup.batch = std::move(*batch);
  const Plan& plan = setup.batch->plan();
  row.pairs = std::accumulate(plan.legal_pairs.begin(), plan.legal_pairs.end(),
                              int64_t{0}) /
              plan.heads;
  return {};
}

}  // namespace

Result<OurTimes> measure_ours(BenchRow& row, Isa isa, double seconds) {
  Setup setup;
  if (auto r = bind(setup, row, isa); !r) return r.error();
  // The first run is not counted: it touches the memory and starts the threads.
  if (auto r = setup.run(); !r) return r.error();
  const OtherCores others;
  const Rounds rounds{
      .least = 3, .most = 10000, .seconds = seconds, .limit = 4 * seconds};
  auto runs = repeat<OneRun>(rounds, [&] { return setup.run(); });
  if (!runs) return runs.error();
  OurTimes times;
  times.other_cores = others.so_far();
  for (const OneRun& run : *runs) times.ms.push_back(run.ms);
  times.prepare_ms =
      std::ranges::min(*runs, {}, &OneRun::prepare_ms).prepare_ms;
  Progress progress("checking");
  auto check = run::judge_run(setup.data.over(*setup.batch),
                              {.progress = progress.callback()});
  if (!check) return check.error();
  if (!check->passed) {
    return invalid("bench",
                   "every result must be within its bound, found {:.3g} of it "
                   "for {}: {}",
                   check->max_bound_ratio, row.what->name, check->worst);
  }
  times.check = std::move(*check);
  return times;
}

}  // namespace tessera::bench
