// bench/mesh/measure.cc: sessions side by side, layer by layer.
#include "bench/mesh/measure.h"

#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "base/fail.h"
#include "base/timed.h"
#include "bench/harness/times.h"
#include "cli/data/random_inputs.h"
#include "cli/progress.h"
#include "cli/run/check.h"
#include "pjrt/environment.h"
#include "request/drawn_documents.h"

namespace tessera::bench {
namespace {

using cli::AttentionData;
using cli::Progress;

struct Open {
  MeshContender* contender;
  Prepared ready;
  std::vector<double> forward, backward, cpu, stay_forward, stay_backward,
      moved;
};

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
  if (s.plugin) options.xla.plugin = *s.plugin;
  options.mesh = c.mesh;
  options.shards.balance = c.balance;
  auto session = Session::open(std::move(options));
  if (!session) return session.error();
  return session->prepare(batch, call);
}

Result<void> run_on_host(Open& o, AttentionData& data, int64_t layers) {
  double forward = 0, backward = 0;
  const std::clock_t begun = std::clock();
  for (int64_t i = 0; i < layers; ++i) {
    auto saved =
        timed(forward, [&] { return o.ready.forward(data.forward_tensors()); });
    if (!saved) return saved.error();
    auto ok = timed(backward,
                    [&] { return o.ready.backward(*saved, data.gradients()); });
    if (!ok) return ok;
  }
  const auto cpu = static_cast<double>(std::clock() - begun);
  o.cpu.push_back(1000 * cpu / CLOCKS_PER_SEC / static_cast<double>(layers));
  o.forward.push_back(forward / static_cast<double>(layers));
  o.backward.push_back(backward / static_cast<double>(layers));
  return {};
}

// Puts once, runs the layers, fetches once.
Result<void> run_in_place(Open& o, AttentionData& data, int64_t layers) {
  double forward = 0, backward = 0, moved = 0;
  const auto put = [&](ArrayRole role, cli::Array& array) {
    return timed(moved,
                 [&] { return o.ready.put(role, as_input(array.view())); });
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
      return o.ready.forward(DeviceForward{*q, *k, *v, {}});
    });
    if (!ran) return ran.error();
    saved = std::move(*ran);
    auto back = timed(backward, [&] { return o.ready.backward(saved, *dout); });
    if (!back) return back.error();
    gradients = std::move(*back);
  }
  auto fetched = timed(moved, [&]() -> Result<void> {
    data.lse = saved.lse;
    const std::pair<const DeviceArray*, cli::Array*> results[] = {
        {&saved.out, &data.out},
        {&gradients.dq, &data.dq},
        {&gradients.dk, &data.dk},
        {&gradients.dv, &data.dv}};
    for (const auto& [from, to] : results) {
      if (auto e = o.ready.fetch(*from, to->view()); !e) return e;
    }
    return {};
  });
  if (!fetched) return fetched;
  o.stay_forward.push_back(forward / static_cast<double>(layers));
  o.stay_backward.push_back(backward / static_cast<double>(layers));
  o.moved.push_back(moved);
  return {};
}

// What one leaves behind must not pass for what the next one wrote.
void forget_outputs(AttentionData& data) {
  const auto clear = [](cli::Array& array) {
    array.fill(std::string(array.bytes().size(), '\xff'));
  };
  clear(data.out);
  clear(data.dq);
  clear(data.dk);
  clear(data.dv);
}

Result<void> judge(const Batch& batch, Open& o, AttentionData& data) {
  for (const bool in_place : {false, true}) {
    forget_outputs(data);
    auto ran = in_place ? run_in_place(o, data, 1) : run_on_host(o, data, 1);
    if (!ran) return ran;
    auto check = cli::check_run(batch, data, 0, true);
    if (!check) return check.error();
    o.contender->check = std::move(*check);
    if (!o.contender->check.passed) return {};
  }
  return {};
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
  cli::fill_inputs(data, 0);
  // Before one device alone: all share the plugin's threads.
  pjrt::raise_threads(s.devices);
  std::vector<Open> open;
  for (MeshContender& c : contenders) {
    Progress progress(c.name);
    auto ready = prepare(s, c, *batch, data.call());
    if (!ready) return ready.error();
    open.push_back({&c, std::move(*ready), {}, {}, {}, {}, {}, {}});
    if (auto ok = judge(*batch, open.back(), data); !ok) return ok;
    Open& o = open.back();
    for (auto* times : {&o.forward, &o.backward, &o.cpu, &o.stay_forward,
                        &o.stay_backward, &o.moved}) {
      times->clear();  // the first calls
    }
  }
  for (int64_t round = 0; round < s.rounds; ++round) {
    Progress progress(fmt::format("round {}", round + 1));
    for (Open& o : open) {
      if (auto ok = run_on_host(o, data, s.layers); !ok) return ok;
      if (auto ok = run_in_place(o, data, s.layers); !ok) return ok;
    }
  }
  for (Open& o : open) {
    const auto median = [](const std::vector<double>& ms) {
      return times_of(ms).median_ms;
    };
    o.contender->times = {median(o.forward),       median(o.backward),
                          median(o.cpu),           median(o.stay_forward),
                          median(o.stay_backward), median(o.moved)};
  }
  return {};
}

}  // namespace tessera::bench
