// bench/mesh/measure.cc: runs the sessions of all contenders in turns.
#include "bench/mesh/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/fail.h"
#include "base/timed.h"
#include "base/turns.h"
#include "bench/harness/times.h"
#include "cli/progress.h"
#include "pjrt/environment.h"
#include "request/drawn_documents.h"
#include "request/random_inputs.h"
#include "run/judge_run.h"

namespace tessera::bench {
namespace {

using cli::Progress;
using request::AttentionData;

Result<OwnedBatch> drawn_batch(const MeshSettings& s) {
  Request request;
  request.masks = {*parse_mask("causal & documents")};
  request.q_len = request.kv_len = s.tokens;
  OwnedFacts facts;
  facts.doc_ids = request::lognormal_ids(s.mean, 0, s.tokens);
  return OwnedBatch::make(std::move(request), std::move(facts));
}

Result<Prepared> prepare(const MeshSettings& s, const MeshContender& c,
                         const Batch& batch, const AttentionCall& call) {
  SessionOptions options;
  options.lane = LaneId::xla;
  options.xla.plugin = s.plugin;
  options.mesh = c.mesh;
  options.shards.balance = c.balance;
  auto session = Session::open(std::move(options));
  if (!session) return session.error();
  return session->prepare(batch, call);
}

Result<MeshTimes> run_on_host(Prepared& ready, AttentionData& data,
                              int64_t layers) {
  double forward = 0, backward = 0;
  const std::clock_t begun = std::clock();
  for (int64_t i = 0; i < layers; ++i) {
    auto saved =
        timed(forward, [&] { return ready.forward(data.forward_tensors()); });
    if (!saved) return saved.error();
    auto ok = timed(backward,
                    [&] { return ready.backward(*saved, data.gradients()); });
    if (!ok) return ok.error();
  }
  const auto cpu = static_cast<double>(std::clock() - begun);
  MeshTimes out;
  out.forward = forward / static_cast<double>(layers);
  out.backward = backward / static_cast<double>(layers);
  out.cpu = 1000 * cpu / CLOCKS_PER_SEC / static_cast<double>(layers);
  return out;
}

// Puts the arrays once, runs the layers, fetches the results once.
Result<MeshTimes> run_in_place(Prepared& ready, AttentionData& data,
                               int64_t layers) {
  double forward = 0, backward = 0, moved = 0;
  const auto put = [&](ArrayRole role, request::Array& array) {
    return timed(moved,
                 [&] { return ready.put(role, as_input(array.view())); });
  };
  auto q = put(ArrayRole::q, data.q);
  auto k = put(ArrayRole::k, data.k);
  auto v = put(ArrayRole::v, data.v);
  auto dout = put(ArrayRole::out, data.dout);
  for (const auto* array : {&q, &k, &v, &dout}) {
    if (!*array) return array->error();
  }
  DeviceSaved saved;
  DeviceGradients gradients;
  for (int64_t i = 0; i < layers; ++i) {
    auto ran = timed(forward, [&] {
      return ready.forward(DeviceForward{*q, *k, *v, {}});
    });
    if (!ran) return ran.error();
    saved = std::move(*ran);
    auto back = timed(backward, [&] { return ready.backward(saved, *dout); });
    if (!back) return back.error();
    gradients = std::move(*back);
  }
  auto fetched = timed(moved, [&]() -> Result<void> {
    data.lse = saved.lse;
    const std::pair<const DeviceArray*, request::Array*> results[] = {
        {&saved.out, &data.out},
        {&gradients.dq, &data.dq},
        {&gradients.dk, &data.dk},
        {&gradients.dv, &data.dv}};
    for (const auto& [from, to] : results) {
      if (auto e = ready.fetch(*from, to->view()); !e) return e;
    }
    return {};
  });
  if (!fetched) return fetched.error();
  MeshTimes out;
  out.stay_forward = forward / static_cast<double>(layers);
  out.stay_backward = backward / static_cast<double>(layers);
  out.put_and_fetch = moved;
  return out;
}

// Overwrites the outputs, so that results of one contender are not taken for
// those of the next.
void forget_outputs(AttentionData& data) {
  const auto clear = [](request::Array& array) {
    array.fill(std::string(array.bytes().size(), '\xff'));
  };
  clear(data.out);
  clear(data.dq);
  clear(data.dk);
  clear(data.dv);
}

Result<void> judge(const Batch& batch, Prepared& ready, MeshContender& c,
                   AttentionData& data) {
  for (const bool in_place : {false, true}) {
    forget_outputs(data);
    auto ran =
        in_place ? run_in_place(ready, data, 1) : run_on_host(ready, data, 1);
    if (!ran) return ran.error();
    Progress progress("checking");
    auto check = run::judge_run(
        data.over(batch), {.flushes = true, .progress = progress.callback()});
    if (!check) return check.error();
    c.check = std::move(*check);
    if (!c.check.passed) return {};
  }
  return {};
}

double median(const std::vector<MeshTimes>& runs, double MeshTimes::*time) {
  std::vector<double> ms(runs.size());
  std::ranges::transform(runs, ms.begin(), time);
  return times_of(std::move(ms)).median_ms;
}

}  // namespace

std::vector<MeshContender> mesh_contenders(const MeshSettings& s) {
  std::vector<MeshContender> out(1);
  out[0].name = "one device";
  for (const Balance b : {Balance::contiguous, Balance::headtail, Balance::rows,
                          Balance::tasks}) {
    MeshContender c;
    c.mesh = {{{"seq", s.devices}}};
    c.balance = b;
    c.name = fmt::format("seq={} {}", s.devices, to_string(b));
    out.push_back(std::move(c));
  }
  return out;
}

Result<void> measure_mesh(const MeshSettings& s,
                          std::vector<MeshContender>& contenders) {
  auto batch = drawn_batch(s);
  if (!batch) return batch.error();
  AttentionData data;
  data.q_len = data.kv_len = s.tokens;
  data.shape = s.shape;
  data.backward = true;
  data.allocate();
  request::fill_inputs(data, 0);
  // Before the single device opens: all contenders share the plugin's threads.
  pjrt::raise_threads(s.devices);
  std::vector<Prepared> open;
  for (MeshContender& c : contenders) {
    Progress progress(c.name);
    auto ready = prepare(s, c, *batch, data.call());
    if (!ready) return ready.error();
    // The first calls are checked and not timed.
    if (auto ok = judge(*batch, *ready, c, data); !ok) return ok;
    open.push_back(std::move(*ready));
  }
  std::vector<Turn<MeshTimes>> turns;
  for (Prepared& ready : open) {
    turns.emplace_back([&data, &s, ready = &ready] {
      return run_on_host(*ready, data, s.layers);
    });
    turns.emplace_back([&data, &s, ready = &ready] {
      return run_in_place(*ready, data, s.layers);
    });
  }
  auto runs = take_turns<MeshTimes>(just(s.rounds), turns);
  if (!runs) return runs.error();
  for (size_t i = 0; i < contenders.size(); ++i) {
    const std::vector<MeshTimes>& host = (*runs)[2 * i];
    const std::vector<MeshTimes>& stay = (*runs)[2 * i + 1];
    contenders[i].times = {median(host, &MeshTimes::forward),
                           median(host, &MeshTimes::backward),
                           median(host, &MeshTimes::cpu),
                           median(stay, &MeshTimes::stay_forward),
                           median(stay, &MeshTimes::stay_backward),
                           median(stay, &MeshTimes::put_and_fetch)};
  }
  return {};
}

}  // namespace tessera::bench
