// cli/run_lane.cc: the lanes `tessera run` can execute.
#include "cli/run_lane.h"

#include <chrono>
#include <utility>

#include "base/tensor_rows.h"
#include "tessera/reference.h"

namespace tessera::cli {
namespace {

// Runs `work` and adds its time.
auto timed(double& ms, auto work) {
  const auto start = std::chrono::steady_clock::now();
  auto result = work();
  const std::chrono::duration<double, std::milli> took =
      std::chrono::steady_clock::now() - start;
  ms += took.count();
  return result;
}

Result<LaneRun> run_cpu(const LaneCall& c) {
  LaneRun out;
  auto work = timed(out.prepare_ms, [&] {
    return cpu_prepare(c.request, c.facts, c.plan, c.options);
  });
  if (!work) return work.error();
  auto forward = timed(out.forward_ms, [&] {
    return cpu_forward(*work, c.data.shape, c.data.forward_tensors(),
                       c.options);
  });
  if (!forward) return forward.error();
  out.isa = to_string(forward->isa);
  out.threads = forward->threads;
  out.tiles_run = forward->tiles_run;
  out.tiles_skipped = forward->tiles_skipped;
  out.pairs_run = forward->pairs_run;
  if (!c.data.backward) return out;
  auto backward = timed(out.backward_ms, [&] {
    return cpu_backward(*work, c.data.shape, c.data.backward_tensors(),
                        c.options);
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

void narrow(const std::vector<double>& from, std::vector<float>& to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(from[i]);
}

// It has no tiles to run or skip: it asks every pair whether it is legal, and
// scores those that are.
Result<LaneRun> run_reference(const LaneCall& c) {
  AttentionData& data = c.data;
  const ForwardTensors t = data.forward_tensors();
  std::vector<double> q, k, v, sinks;
  LaneRun out;
  timed(out.prepare_ms, [&] {
    q = widen(t.q), k = widen(t.k), v = widen(t.v);
    if (data.sink_logits) {
      sinks.assign(data.sink_logits->begin(), data.sink_logits->end());
    }
    return 0;
  });
  AttentionInputs inputs{q, k, v, {}};
  if (data.sink_logits) inputs.sink_logits = sinks;
  auto forward = timed(out.forward_ms, [&] {
    return reference_forward(c.request, c.facts, data.shape, inputs);
  });
  if (!forward) return forward.error();
  narrow(forward->out, data.out.view());
  narrow(forward->lse, data.lse);
  out.isa = to_string(Isa::portable);
  out.pairs_run = legal_pairs(c.plan, data.shape.heads);
  if (!data.backward) return out;
  const std::vector<double> dout = widen(data.backward_tensors().dout);
  const std::vector<double> dlse(data.dlse.begin(), data.dlse.end());
  auto backward = timed(out.backward_ms, [&] {
    return reference_backward(c.request, c.facts, data.shape, inputs, dout,
                              dlse);
  });
  if (!backward) return backward.error();
  narrow(backward->dq, data.dq.view());
  narrow(backward->dk, data.dk.view());
  narrow(backward->dv, data.dv.view());
  narrow(backward->dsink_logits, data.dsink_logits);
  return out;
}

constexpr Lane kLanes[] = {
    // Backward sums dq in fp32: at most a quarter of q, out, dout and dq.
    {"cpu", "native", true, 0, 0.25, run_cpu},
    {"reference", "reference", false, 2, 2, run_reference},
};

}  // namespace

std::span<const Lane> lanes() { return kLanes; }

int64_t legal_pairs(const Plan& plan, int64_t heads) {
  int64_t pairs = 0;
  for (const int64_t n : plan.legal_pairs) pairs += n;
  return pairs * (heads / plan.heads);
}

}  // namespace tessera::cli
