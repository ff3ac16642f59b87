// cli/run_lane.cc: the lanes `tessera run` can execute.
#include "cli/run_lane.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/isa.h"
#include "base/tensor_rows.h"
#include "base/timed.h"
#include "lanes/tensors.h"
#include "tessera/contract.h"
#include "tessera/reference.h"

namespace tessera::cli {
namespace {

double f32_bytes(const AttentionData& d) {
  return data_bytes(d).all * 4 / static_cast<double>(byte_width(d.dtype));
}

// What a lane would refuse only when all arrays are there.
Result<void> check_dims(const AttentionData& d, std::string_view lane) {
  for (const auto& [dim, what] :
       {std::pair(d.shape.head_dim, "--head-dim"),
        std::pair(d.shape.v_head_dim, "--v-head-dim")}) {
    if (dim % kDimStep != 0 || dim > kMaxDim) {
      return invalid("cli",
                     "{} must be a multiple of {} up to {} for --lane {}, "
                     "found {}",
                     what, kDimStep, kMaxDim, lane, dim);
    }
  }
  return {};
}

Result<void> open_cpu(const AttentionData& d, LaneOptions& options) {
  if (auto isa = choose_isa(options.cpu.isa); !isa) return isa.error();
  return check_dims(d, "cpu");
}

// Backward sums dq in fp32: at most a quarter of q, out, dout and dq.
double more_of_cpu(const AttentionData& d, const LaneOptions&) {
  return d.backward ? 0.25 * f32_bytes(d) : 0;
}

Result<LaneRun> run_cpu(const LaneCall& c) {
  LaneRun out;
  auto work = timed(out.prepare_ms, [&] {
    return cpu_prepare(c.request, c.facts, c.plan, c.options.cpu);
  });
  if (!work) return work.error();
  auto forward = timed(out.forward_ms, [&] {
    return cpu_forward(*work, c.data.shape, c.data.forward_tensors(),
                       c.options.cpu);
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
                        c.options.cpu);
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

Result<void> open_reference(const AttentionData&, LaneOptions&) { return {}; }

// fp64 beside every array.
double more_of_reference(const AttentionData& d, const LaneOptions&) {
  return 2 * f32_bytes(d);
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
  out.threads = 1;
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

Result<void> open_xla(const AttentionData& d, LaneOptions& options) {
  if (auto e = check_dims(d, "xla"); !e) return e;
  auto lane = XlaLane::open(options.xla);
  if (!lane) return lane.error();
  options.opened.emplace(std::move(*lane));
  return {};
}

// A copy in the program's own lengths, and on a CPU one more: its buffers lie
// in this machine's memory. What the program itself takes is known when it is
// compiled, and asked then.
double more_of_xla(const AttentionData& d, const LaneOptions& options) {
  AttentionData padded;
  padded.shape = d.shape;
  padded.dtype = d.dtype;
  padded.backward = d.backward;
  padded.batch = bucket(d.batch);
  padded.q_len = bucket(d.q_len);
  padded.kv_len = bucket(d.kv_len);
  const double copies = options.opened->place().platform == "cpu" ? 2 : 1;
  return copies * data_bytes(padded).all;
}

// Adds what one direction did, and gives the time that its parts leave over to
// `prepare_ms`: making the program's inputs.
void add_xla(const XlaRun& ran, const char* direction, double wall_ms,
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

Result<LaneRun> run_xla(const LaneCall& c) {
  const XlaLane& lane = *c.options.opened;
  LaneRun out;
  double wall_ms = 0;
  auto forward = timed(wall_ms, [&] {
    return lane.forward(c.request, c.facts, c.plan, c.data.shape,
                        c.data.forward_tensors());
  });
  if (!forward) return forward.error();
  add_xla(*forward, "forward", wall_ms, out);
  out.forward_ms = forward->run_ms;
  out.tiles_run = forward->tiles_run;
  out.tiles_skipped = forward->tiles_skipped;
  out.pairs_run = forward->pairs_run;
  if (!c.data.backward) return out;
  wall_ms = 0;
  auto backward = timed(wall_ms, [&] {
    return lane.backward(c.request, c.facts, c.plan, c.data.shape,
                         c.data.backward_tensors());
  });
  if (!backward) return backward.error();
  add_xla(*backward, "backward", wall_ms, out);
  out.backward_ms = backward->run_ms;
  return out;
}

constexpr Lane kLanes[] = {
    {"cpu", open_cpu, more_of_cpu, run_cpu},
    {"reference", open_reference, more_of_reference, run_reference},
    {"xla", open_xla, more_of_xla, run_xla, true},
};

}  // namespace

std::span<const Lane> lanes() { return kLanes; }

std::string lane_family(const Lane& lane, const LaneOptions& options) {
  if (lane.name == "reference") return "reference";
  if (!options.opened) return "native";
  // The code is the compiler's own, whoever ships the plugin.
  const std::string& platform = options.opened->place().platform;
  if (platform == "tpu") return "tpu/jax";
  return platform == "cuda" ? "cuda" : "xla";
}

int64_t legal_pairs(const Plan& plan, int64_t heads) {
  int64_t pairs = 0;
  for (const int64_t n : plan.legal_pairs) pairs += n;
  return pairs * (heads / plan.heads);
}

}  // namespace tessera::cli
