// bench/routed/case.cc: runs one length of `tessera-bench routed`.
#include "bench/routed/case.h"

#include <fmt/format.h>

#include <utility>

#include "base/integers.h"
#include "base/timed.h"
#include "receipt/machine.h"
#include "request/random_inputs.h"
#include "route/stage_times.h"
#include "run/judge_run.h"
#include "tessera/batch.h"

namespace tessera::bench {

using request::Array;
using request::AttentionData;
using request::Clusters;
using request::fill_clustered_keys;
using request::fill_clustered_queries;
using request::fill_random;
using request::Layout;
using request::Stream;

namespace {

Request request_of(const Expr& expr, int64_t tokens) {
  Request r;
  r.masks = {*make_mask(expr)};
  r.q_len = r.kv_len = tokens;
  r.tile = {kRoutedBlock, kRoutedBlock};
  return r;
}

// The first heads of a tensor.
template <class View>
View first_heads(View view, int64_t heads) {
  view.heads = heads;
  return view;
}

}  // namespace

Result<RoutedCase> RoutedCase::make(const RoutedSizes& sizes, int64_t tokens,
                                    bool attends) {
  SessionOptions options;
  options.lane = LaneId::cpu;
  options.cpu.threads = sizes.threads;
  auto session = Session::open(std::move(options));
  if (!session) return session.error();
  RoutedCase out(sizes, tokens, std::move(*session));
  const AttentionShape& s = sizes.shape;
  AttentionData& data = out.data_;
  data.q_len = data.kv_len = tokens;
  data.shape = s;
  data.dtype = sizes.dtype;
  if (attends) {
    data.allocate();
    fill_random(data.v.view(), sizes.seed, Stream::v);
    return out;
  }
  data.q = Array(sizes.dtype, Layout::bhsd, 1, s.heads, tokens, s.head_dim);
  data.k = Array(sizes.dtype, Layout::bhsd, 1, s.kv_heads, tokens, s.head_dim);
  return out;
}

double RoutedCase::bytes(const RoutedSizes& sizes, int64_t tokens,
                         bool attends) {
  const AttentionShape& s = sizes.shape;
  const int64_t heads = (s.heads + s.kv_heads) * (attends ? 2 : 1);
  return static_cast<double>(heads) * static_cast<double>(tokens) *
         static_cast<double>(s.head_dim) *
         static_cast<double>(byte_width(sizes.dtype));
}

Clusters RoutedCase::clusters(int64_t batch) const {
  Clusters c;
  c.seed = sizes_.seed + static_cast<uint64_t>(batch);
  c.query_tile = c.block = kRoutedBlock;
  c.spread = sizes_.spread;
  return c;
}

void RoutedCase::draw(int64_t batch) {
  fill_clustered_queries(data_.q, clusters(batch));
  fill_clustered_keys(data_.k, clusters(batch));
}

Request RoutedCase::request(int64_t top) const {
  return request_of(causal() & routed(top, kRoutedBlock), tokens_);
}

RouteSettings RoutedCase::settings(int64_t top, bool hierarchical) const {
  RouteSettings s = moba_settings(top, kRoutedBlock);
  s.query_tile = kRoutedBlock;
  s.meaning = sizes_.meaning;
  s.hierarchical = hierarchical;
  return s;
}

Result<RoutedRun> RoutedCase::route(int64_t top, bool hierarchical) const {
  RoutedTimes times;
  RouteInputs in;
  in.q = data_.q.view();
  in.k = data_.k.view();
  RouteOptions options;
  options.threads = sizes_.threads;
  options.memory = receipt::available_memory();
  options.after = routing::adds_to(times.stage);
  double both = 0;
  auto batch = timed(both, [&] {
    return OwnedBatch::route(request(top), {}, in, settings(top, hierarchical),
                             options);
  });
  if (!batch) return batch.error();
  times.plan = batch->plan_ms();
  times.routing = both - times.plan;
  return RoutedRun{std::move(*batch), times};
}

Result<void> RoutedCase::attend(RoutedRun& run) {
  auto ready = timed(run.times.prepare,
                     [&] { return session_.prepare(run.batch, data_.call()); });
  if (!ready) return ready.error();
  auto ran = timed(run.times.attention,
                   [&] { return ready->forward(data_.forward_tensors()); });
  if (!ran) return ran.error();
  return {};
}

Result<reference::Verdict> RoutedCase::judge(const RoutedRun& run) {
  return reference::judge_forward(
      run.batch, data_.shape, data_.forward_tensors(),
      run::judge_options(run.batch.request(), data_.shape,
                         {.seed = sizes_.seed}));
}

Result<double> RoutedCase::dense(int64_t heads) {
  AttentionCall call = data_.call();
  AttentionShape& shape = call.shape;
  const int64_t group = shape.heads / shape.kv_heads;
  shape.heads = heads;
  shape.kv_heads = ceil_div(heads, group);
  ForwardTensors t = data_.forward_tensors();
  t.q = first_heads(t.q, heads);
  t.k = first_heads(t.k, shape.kv_heads);
  t.v = first_heads(t.v, shape.kv_heads);
  t.out = first_heads(t.out, heads);
  t.lse = t.lse.first(static_cast<size_t>(heads * tokens_));
  const Request r = request_of(causal(), tokens_);
  double ms = 0;
  auto ran = timed(ms, [&]() -> Result<Saved> {
    auto batch = OwnedBatch::make(r, {});
    if (!batch) return batch.error();
    auto ready = session_.prepare(*batch, call);
    if (!ready) return ready.error();
    return ready->forward(t);
  });
  if (!ran) return ran.error();
  return ms;
}

int64_t RoutedCase::causal_tiles(const RoutedRun& run) const {
  const int64_t rows = tokens_ / kRoutedBlock;
  return run.plan().heads * (rows * (rows + 1) / 2);
}

double RoutedCase::density(const RoutedRun& run) const {
  return static_cast<double>(run.plan().forward.entries.size()) /
         static_cast<double>(causal_tiles(run));
}

Result<std::string> RoutedCase::contract(const RoutedRun& run,
                                         int64_t top) const {
  Request r = request(top);
  const int64_t rows = tokens_ / kRoutedBlock;
  r.ceilings.max_width = rows;
  r.ceilings.max_steps = run.plan().heads * rows * rows;
  r.ceilings.max_union = rows;
  auto batch = BorrowedBatch::make(std::move(r), run.batch.facts());
  if (!batch) return batch.error();
  auto made = make_contract(*batch);
  if (!made) return made.error();
  return made->key;
}

}  // namespace tessera::bench
