// lanes/xla/work.cc: runs a layer over host arrays, which are sent and read
// back, or over arrays that stay on the device.
#include "lanes/xla/work.h"

#include <limits>
#include <utility>

#include "base/fail.h"
#include "base/trace.h"
#include "lanes/lane.h"
#include "lanes/xla/planned.h"
#include "tessera/layouts.h"

namespace tessera::xla {
namespace {

// The log-sum-exp of a padding query: every score has probability 0.
constexpr float kNoQuery = std::numeric_limits<float>::infinity();

Dims q_dims(const Shape& s, int64_t dim) {
  return {s.batch, s.heads, s.q_len, dim};
}
Dims k_dims(const Shape& s, int64_t dim) {
  return {s.batch, s.kv_heads, s.kv_len, dim};
}
Dims rows(const Shape& s) { return {s.batch, s.heads, s.q_len}; }
// The same without padding.
Dims real_rows(const Shape& s, const Plan& plan) {
  return {plan.batch, s.heads, plan.q_len};
}

lanes::ProgramOutput to_lse(std::span<float> lse, const Shape& s,
                            const Plan& plan) {
  return lanes::to_floats(lse, lse.empty() ? Dims{} : real_rows(s, plan),
                          rows(s), rows(s));
}

void add_rows(Inputs& inputs, const Shape& s, const Plan& plan,
              std::span<const float> lse, std::span<const float> dlse) {
  const Dims have = real_rows(s, plan);
  inputs.add("lse", lanes::Staged(lse.data(), have, rows(s), kNoQuery));
  if (s.dlse) inputs.add("dlse", lanes::Staged(dlse.data(), have, rows(s), 0));
}

// Fails if a call's arrays are not those its program was compiled for.
Result<void> check_pass(const Shape& s, Dtype dtype, bool sink_logits,
                        bool dlse) {
  return lanes::check_pass("xla", {dtype_of(s.element), s.sink_logits, s.dlse},
                           {dtype, sink_logits, dlse});
}

}  // namespace

Result<std::string> program_text(const Shape& shape) {
  if (shape.sinks) return sinks_program(shape);
  return shape.backward ? backward_program(shape) : forward_program(shape);
}

Result<const Pass*> XlaWork::State::pass(bool is_backward) const {
  const auto& found = is_backward ? backward : forward;
  if (found) return found.get();
  return lanes::no_backward("xla");
}

Result<XlaRun> XlaWork::State::run(const Pass& pass, const Inputs& inputs,
                                   std::vector<lanes::ProgramOutput> outputs,
                                   const StopFlag* stop) const {
  XlaRun out;
  const Shape& s = pass.shape;
  int32_t tiles = 0;
  outputs.push_back({{Dtype::i32, {}}, &tiles, {}});  // the program's own count
  std::vector<pjrt::HostArray> arrays;
  for (const Argument& a : arguments_of(s)) {
    pjrt::HostArray array = inputs.of(a.name);
    array.type = array_type(a.type);
    const auto sent = pass.sent.find(a.name);
    if (sent != pass.sent.end()) array.sent = &sent->second;
    arrays.push_back(std::move(array));
  }
  auto ran = lanes::run_program("xla", *pass.program, arrays, outputs, stop,
                                out.transfer_ms, out.run_ms);
  if (!ran) return ran.error();
  out.contract = pass.prepared.contract;
  const Plan& plan = batch.plan();
  const int64_t all =
      plan.batch * s.heads * plan.forward.rows * plan.forward.columns;
  if (s.method == XlaMethod::worklist) {
    out.tiles_run = tiles * s.unit_heads();
    const int64_t visits = step_count(plan.forward) * (s.heads / s.plan_heads);
    out.pairs_run = visits * s.tile.q * s.tile.kv;
  } else {
    out.tiles_run = all;
    out.pairs_run = s.batch * s.heads * s.q_len * s.kv_len;
  }
  out.tiles_skipped = all - out.tiles_run;
  return out;
}

XlaWork::XlaWork(std::unique_ptr<State> state) : state_(std::move(state)) {}
XlaWork::XlaWork(XlaWork&&) noexcept = default;
XlaWork& XlaWork::operator=(XlaWork&&) noexcept = default;
XlaWork::~XlaWork() = default;

const XlaRun* XlaWork::prepared(bool backward) const {
  const auto& pass = backward ? state_->backward : state_->forward;
  return pass ? &pass->prepared : nullptr;
}

const XlaRun* XlaWork::prepared_sinks() const {
  return state_->sinks ? &state_->sinks->prepared : nullptr;
}

Result<std::string> XlaWork::program_text(bool backward) const {
  auto pass = state_->pass(backward);
  if (!pass) return pass.error();
  return xla::program_text((*pass)->shape);
}

Result<XlaRun> XlaWork::forward(const ForwardTensors& t,
                                const StopFlag* stop) const {
  const TraceSpan span("xla", "forward");
  auto e = lanes::check_forward("xla", state_->sizes(), state_->shape, t);
  if (!e) return e.error();
  const Pass& pass = *state_->forward;
  const Shape& s = pass.shape;
  if (auto fits = check_pass(s, t.q.dtype, t.sink_logits.has_value(), s.dlse);
      !fits) {
    return fits.error();
  }
  Inputs inputs;
  inputs.add("q", lanes::Staged(t.q, q_dims(s, s.head_dim)));
  inputs.add("k", lanes::Staged(t.k, k_dims(s, s.head_dim)));
  inputs.add("v", lanes::Staged(t.v, k_dims(s, s.v_head_dim)));
  if (t.sink_logits) inputs.add("sink_logits", t.sink_logits->data());
  return state_->run(pass, inputs,
                     {lanes::to_tensor(t.out, q_dims(s, s.v_head_dim)),
                      to_lse(t.lse, s, state_->batch.plan())},
                     stop);
}

Result<lanes::SinkRows> XlaWork::sink_rows(const ForwardTensors& t,
                                           int64_t first_keys,
                                           const StopFlag* stop) const {
  const TraceSpan span("xla", "sink telemetry");
  auto e = lanes::check_forward("xla", state_->sizes(), state_->shape, t);
  if (!e) return e.error();
  if (!state_->sinks) {
    return lanes::no_sink_telemetry("xla");
  }
  const Pass& pass = *state_->sinks;
  const Shape& s = pass.shape;
  if (auto fits = check_pass(s, t.q.dtype, t.sink_logits.has_value(), s.dlse);
      !fits) {
    return fits.error();
  }
  const auto first = static_cast<int32_t>(first_keys);
  Inputs inputs;
  inputs.add("first_keys", &first);
  inputs.add("q", lanes::Staged(t.q, q_dims(s, s.head_dim)));
  inputs.add("k", lanes::Staged(t.k, k_dims(s, s.head_dim)));
  if (t.sink_logits) inputs.add("sink_logits", t.sink_logits->data());
  const Dims have = real_rows(s, state_->batch.plan());
  const auto queries = static_cast<size_t>(have[0] * have[1] * have[2]);
  lanes::SinkRows out;
  out.mass.resize(queries);
  out.entropy.resize(queries);
  std::vector<float> live(queries);
  auto ran = state_->run(pass, inputs,
                         {lanes::to_floats(out.mass, have, rows(s), rows(s)),
                          lanes::to_floats(out.entropy, have, rows(s), rows(s)),
                          lanes::to_floats(live, have, rows(s), rows(s))},
                         stop);
  if (!ran) return ran.error();
  out.live.reserve(queries);
  for (const float x : live) out.live.push_back(x != 0 ? 1 : 0);
  return out;
}

Result<XlaRun> XlaWork::forward(lanes::ResidentForward& t,
                                const StopFlag* stop) const {
  const TraceSpan span("xla", "forward");
  const Pass& pass = *state_->forward;
  const Shape& s = pass.shape;
  Inputs inputs;
  inputs.add("q", *t.q);
  inputs.add("k", *t.k);
  inputs.add("v", *t.v);
  if (t.sink_logits) inputs.add("sink_logits", t.sink_logits->data());
  auto made = std::make_shared<DeviceParts>();
  auto ran = state_->run(
      pass, inputs,
      {lanes::to_device(array_type({s.element, q_dims(s, s.v_head_dim)}),
                        made->parts),
       to_lse(t.lse, s, state_->batch.plan())},
      stop);
  if (ran) t.out = std::move(made);
  return ran;
}

Result<XlaRun> XlaWork::backward(const ForwardTensors& t, const Gradients& g,
                                 const StopFlag* stop) const {
  const TraceSpan span("xla", "backward");
  auto e = lanes::check_backward("xla", state_->sizes(), state_->shape, t, g);
  if (!e) return e.error();
  auto pass = state_->pass(true);
  if (!pass) return pass.error();
  const Shape& s = (*pass)->shape;
  if (auto fits =
          check_pass(s, t.q.dtype, t.sink_logits.has_value(), !g.dlse.empty());
      !fits) {
    return fits.error();
  }
  Inputs inputs;
  inputs.add("q", lanes::Staged(t.q, q_dims(s, s.head_dim)));
  inputs.add("k", lanes::Staged(t.k, k_dims(s, s.head_dim)));
  inputs.add("v", lanes::Staged(t.v, k_dims(s, s.v_head_dim)));
  inputs.add("out", lanes::Staged(as_input(t.out), q_dims(s, s.v_head_dim)));
  inputs.add("dout", lanes::Staged(g.dout, q_dims(s, s.v_head_dim)));
  add_rows(inputs, s, state_->batch.plan(), t.lse, g.dlse);
  if (t.sink_logits) inputs.add("sink_logits", t.sink_logits->data());
  std::vector<lanes::ProgramOutput> outputs = {
      lanes::to_tensor(g.dq, q_dims(s, s.head_dim)),
      lanes::to_tensor(g.dk, k_dims(s, s.head_dim)),
      lanes::to_tensor(g.dv, k_dims(s, s.v_head_dim))};
  if (t.sink_logits) {
    outputs.push_back({{Dtype::f32, {s.heads}}, g.dsink_logits.data(), {}});
  }
  return state_->run(**pass, inputs, std::move(outputs), stop);
}

Result<XlaRun> XlaWork::backward(lanes::ResidentBackward& t,
                                 const StopFlag* stop) const {
  const TraceSpan span("xla", "backward");
  auto pass = state_->pass(true);
  if (!pass) return pass.error();
  const Shape& s = (*pass)->shape;
  Inputs inputs;
  inputs.add("q", *t.q);
  inputs.add("k", *t.k);
  inputs.add("v", *t.v);
  inputs.add("out", *t.out);
  inputs.add("dout", *t.dout);
  add_rows(inputs, s, state_->batch.plan(), t.lse, t.dlse);
  if (t.sink_logits) inputs.add("sink_logits", t.sink_logits->data());
  auto dq = std::make_shared<DeviceParts>();
  auto dk = std::make_shared<DeviceParts>();
  auto dv = std::make_shared<DeviceParts>();
  std::vector<lanes::ProgramOutput> outputs = {
      lanes::to_device(array_type({s.element, q_dims(s, s.head_dim)}),
                       dq->parts),
      lanes::to_device(array_type({s.element, k_dims(s, s.head_dim)}),
                       dk->parts),
      lanes::to_device(array_type({s.element, k_dims(s, s.v_head_dim)}),
                       dv->parts)};
  if (t.sink_logits) {
    outputs.push_back({{Dtype::f32, {s.heads}}, t.dsink_logits.data(), {}});
  }
  auto ran = state_->run(**pass, inputs, std::move(outputs), stop);
  if (!ran) return ran;
  t.dq = std::move(dq);
  t.dk = std::move(dk);
  t.dv = std::move(dv);
  return ran;
}

Result<lanes::ResidentPtr> XlaWork::put(const TensorView& t,
                                        bool queries) const {
  const Pass& pass = *state_->forward;
  const Dims dims =
      queries ? q_dims(pass.shape, t.dim) : k_dims(pass.shape, t.dim);
  const lanes::Staged staged(t, dims);
  auto out = std::make_shared<DeviceParts>();
  auto buffer = pjrt::to_device(pass.program->client(), pass.program->device(),
                                {t.dtype, dims}, staged.data(),
                                pjrt::DataStays::during_call);
  if (!buffer) return buffer.error();
  out->parts.push_back(std::move(*buffer));
  return lanes::ResidentPtr(std::move(out));
}

Result<void> XlaWork::fetch(const lanes::Resident& array,
                            const MutableTensorView& to) const {
  const pjrt::Buffer& from =
      static_cast<const DeviceParts&>(array).parts.front();
  return lanes::read_output(from, lanes::to_tensor(to, from.type().dims));
}

}  // namespace tessera::xla
