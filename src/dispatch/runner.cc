// dispatch/runner.cc: the cpu, xla and reference lanes behind one form.
#include "dispatch/runner.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/isa.h"
#include "base/tensor_rows.h"
#include "base/timed.h"
#include "lanes/jax_bridge/attention.h"
#include "tessera/reference.h"

namespace tessera {
namespace {

Result<void> open_cpu(LaneOptions& options) {
  if (auto isa = choose_isa(options.cpu.isa); !isa) return isa.error();
  return {};
}

Result<LaneRun> run_cpu(const LaneCall& c, bool& forward_ran) {
  LaneRun out;
  auto work = timed(out.prepare_ms,
                    [&] { return cpu_prepare(c.batch, c.options.cpu); });
  if (!work) return work.error();
  auto forward = timed(out.forward_ms, [&] {
    return cpu_forward(*work, c.shape, c.forward, c.options.cpu);
  });
  if (!forward) return forward.error();
  forward_ran = true;
  out.isa = to_string(forward->isa);
  out.threads = forward->threads;
  out.tiles_run = forward->tiles_run;
  out.tiles_skipped = forward->tiles_skipped;
  out.pairs_run = forward->pairs_run;
  if (!c.backward) return out;
  auto backward = timed(out.backward_ms, [&] {
    return cpu_backward(*work, c.shape, *c.backward, c.options.cpu);
  });
  if (!backward) return backward.error();
  return out;
}

// [batch, heads, tokens, dim] in fp64, whatever the layout.
std::vector<double> widen(const TensorView& t) {
  std::vector<double> out(
      static_cast<size_t>(t.batch * t.heads * t.tokens * t.dim));
  double* row = out.data();
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t s = 0; s < t.tokens; ++s, row += t.dim) {
        read_row(t, b, h, s, row);
      }
    }
  }
  return out;
}

void narrow(const std::vector<double>& from, const MutableTensorView& t) {
  const double* row = from.data();
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t s = 0; s < t.tokens; ++s, row += t.dim) {
        write_row(t, b, h, s, row);
      }
    }
  }
}

void narrow(const std::vector<double>& from, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(from[i]);
}

Result<void> open_reference(LaneOptions&) { return {}; }

// It has no tiles to run or skip: it asks every pair whether it is legal, and
// scores those that are.
Result<LaneRun> run_reference(const LaneCall& c, bool& forward_ran) {
  const ForwardTensors& t = c.forward;
  std::vector<double> q, k, v, sinks;
  LaneRun out;
  timed(out.prepare_ms, [&] {
    q = widen(t.q), k = widen(t.k), v = widen(t.v);
    if (t.sink_logits) {
      sinks.assign(t.sink_logits->begin(), t.sink_logits->end());
    }
    return 0;
  });
  AttentionInputs inputs{q, k, v, {}};
  if (t.sink_logits) inputs.sink_logits = sinks;
  auto forward = timed(out.forward_ms, [&] {
    return reference_forward(c.batch.request(), c.batch.facts(), c.shape,
                             inputs);
  });
  if (!forward) return forward.error();
  narrow(forward->out, t.out);
  narrow(forward->lse, t.lse);
  forward_ran = true;
  out.isa = to_string(Isa::portable);
  out.threads = 1;
  out.pairs_run = forward->pairs;
  if (!c.backward) return out;
  const BackwardTensors& b = *c.backward;
  const std::vector<double> dout = widen(b.dout);
  const std::vector<double> dlse(b.dlse.begin(), b.dlse.end());
  auto backward = timed(out.backward_ms, [&] {
    return reference_backward(c.batch.request(), c.batch.facts(), c.shape,
                              inputs, dout, dlse);
  });
  if (!backward) return backward.error();
  narrow(backward->dq, b.dq);
  narrow(backward->dk, b.dk);
  narrow(backward->dv, b.dv);
  narrow(backward->dsink_logits, b.dsink_logits);
  return out;
}

Result<void> open_xla(LaneOptions& options) {
  if (options.opened) return {};
  auto lane = XlaLane::open(options.xla);
  if (!lane) return lane.error();
  options.opened.emplace(std::move(*lane));
  return {};
}

// Adds what one direction did, and gives the time that its parts leave over to
// `prepare_ms`: making the program's inputs.
template <class ProgramRun>
void add_program(const ProgramRun& ran, const char* direction, double wall_ms,
                 LaneRun& out) {
  out.kernels[direction] = ran.contract.key;
  out.compiles += ran.compiles;
  out.memory_hits += ran.memory_hits;
  out.disk_hits += ran.disk_hits;
  out.compile_ms += ran.compile_ms;
  out.transfer_ms += ran.transfer_ms;
  out.prepare_ms +=
      std::max(0.0, wall_ms - ran.compile_ms - ran.transfer_ms - ran.run_ms);
  out.warnings.insert(out.warnings.end(), ran.warnings.begin(),
                      ran.warnings.end());
}

Result<LaneRun> run_xla(const LaneCall& c, bool& forward_ran) {
  const XlaLane& lane = *c.options.opened;
  LaneRun out;
  double wall_ms = 0;
  auto forward =
      timed(wall_ms, [&] { return lane.forward(c.batch, c.shape, c.forward); });
  if (!forward) return forward.error();
  forward_ran = true;
  add_program(*forward, "forward", wall_ms, out);
  out.forward_ms = forward->run_ms;
  out.tiles_run = forward->tiles_run;
  out.tiles_skipped = forward->tiles_skipped;
  out.pairs_run = forward->pairs_run;
  if (!c.backward) return out;
  wall_ms = 0;
  auto backward = timed(
      wall_ms, [&] { return lane.backward(c.batch, c.shape, *c.backward); });
  if (!backward) return backward.error();
  add_program(*backward, "backward", wall_ms, out);
  out.backward_ms = backward->run_ms;
  return out;
}

Result<void> open_bridge(LaneOptions& options) {
  if (!options.artifact) {
    return unavailable("bridge",
                       "it needs an artifact that JAX exported, found none");
  }
  if (options.bridge) return {};
  auto lane =
      BridgeLane::open({options.xla.plugin, options.xla.device,
                        options.xla.cache_folder, options.xla.max_cache_bytes});
  if (!lane) return lane.error();
  options.bridge.emplace(std::move(*lane));
  return {};
}

// The program is JAX's: nobody here can count its tiles and pairs.
Result<LaneRun> run_bridge(const LaneCall& c, bool& forward_ran) {
  if (c.backward) {
    return invalid("bridge", "a run must be forward alone, found backward");
  }
  const BridgeArtifact& artifact = *c.options.artifact;
  auto arrays = bridge::bind_call(artifact.spec, c.batch.request(),
                                  c.batch.facts(), c.shape, c.forward);
  if (!arrays) return arrays.error();
  double wall_ms = 0;
  auto ran = timed(wall_ms, [&] {
    return c.options.bridge->run(artifact.program, artifact.spec,
                                 arrays->inputs, arrays->outputs);
  });
  if (!ran) return ran.error();
  forward_ran = true;
  LaneRun out;
  add_program(*ran, "forward", wall_ms, out);
  out.forward_ms = ran->run_ms;
  out.artifact_digest = ran->artifact_digest;
  return out;
}

constexpr Runner kRunners[] = {
    {LaneId::cpu, open_cpu, run_cpu},
    {LaneId::reference, open_reference, run_reference},
    {LaneId::xla, open_xla, run_xla, true},
    {LaneId::jax_bridge, open_bridge, run_bridge, true},
};

}  // namespace

std::span<const Runner> runners() { return kRunners; }

const Runner* find_runner(LaneId lane) {
  const auto* at =
      std::find_if(std::begin(kRunners), std::end(kRunners),
                   [&](const Runner& r) { return r.lane == lane; });
  return at == std::end(kRunners) ? nullptr : at;
}

int64_t legal_pairs(const Plan& plan, int64_t heads) {
  int64_t pairs = 0;
  for (const int64_t n : plan.legal_pairs) pairs += n;
  return pairs * (heads / plan.heads);
}

}  // namespace tessera
