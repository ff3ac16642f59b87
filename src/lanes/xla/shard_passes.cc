// lanes/xla/shard_passes.cc: runs a layer over host arrays, which are sent to
// the devices and read back, or over arrays that stay on the devices.
#include <algorithm>
#include <utility>

#include "base/trace.h"
#include "lanes/tensors.h"
#include "lanes/xla/shard_work.h"

namespace tessera::xla {
namespace {

using lanes::PassRun;

CallArray input(const TensorView& view, bool by_rows) {
  return {view, nullptr, by_rows};
}
CallArray result(const MutableTensorView& view, bool by_rows) {
  return {as_input(view), view.data, by_rows};
}

// The type of a device's part of an array of queries, or of keys.
Type part_type(const ShardPass& pass, const TensorView& t, bool queries) {
  Type out = std::ranges::find(pass.arrays.arguments, queries ? "q" : "k",
                               [](const ShardArray& a) { return a.part.name; })
                 ->part.type;
  out.dims[3] = t.dim;
  return out;
}

const DeviceParts* there(const lanes::Resident* array) {
  return static_cast<const DeviceParts*>(array);
}

}  // namespace

TensorView ShardWork::numbers(std::span<const float> rows) const {
  const Plan& plan = batch_.plan();
  return TensorView::bhsd(rows.data(), Dtype::f32, plan.batch,
                          call_shape_.heads, plan.q_len, 1);
}

CallArray ShardWork::to_rows(std::span<float> rows) const {
  CallArray out = input(numbers(rows), true);
  out.to = rows.data();
  return out;
}

void ShardWork::add_rows(const ShardPass& pass, std::span<const float> lse,
                         std::span<const float> dlse, Arrays& arrays) const {
  CallArray rows = input(numbers(lse), true);
  rows.beyond = pass.lse_of_none;
  arrays.from["lse"] = rows;
  if (!dlse.empty()) arrays.from["dlse"] = input(numbers(dlse), true);
}

Result<PassRun> ShardWork::forward(const ForwardTensors& t,
                                   const StopFlag* stop) {
  const TraceSpan span(name_.text, "forward");
  auto e = lanes::check_forward(name_.text, lanes::PlanSizes::of(batch_.plan()),
                                call_shape_, t);
  if (!e) return e.error();
  const ShardPass& pass = *passes_[0];
  if (auto fits = lanes::check_pass(name_.text, lanes::arrays_of(pass.call),
                                    {t.q.dtype, t.sink_logits.has_value()});
      !fits) {
    return fits.error();
  }
  Arrays arrays;
  arrays.from = {{"q", input(t.q, true)},
                 {"k", input(t.k, false)},
                 {"v", input(t.v, false)}};
  arrays.to = {{"out", result(t.out, true)}};
  if (!t.lse.empty()) arrays.to["lse"] = to_rows(t.lse);
  arrays.sinks = t.sink_logits;
  return run(pass, arrays, stop);
}

Result<PassRun> ShardWork::forward(lanes::ResidentForward& t,
                                   const StopFlag* stop) {
  const TraceSpan span(name_.text, "forward");
  auto made = std::make_shared<DeviceParts>();
  Arrays arrays;
  arrays.there = {{"q", there(t.q)}, {"k", there(t.k)}, {"v", there(t.v)}};
  arrays.stay = {{"out", made.get()}};
  if (!t.lse.empty()) arrays.to["lse"] = to_rows(t.lse);
  arrays.sinks = t.sink_logits;
  auto ran = run(*passes_[0], arrays, stop);
  if (ran) t.out = std::move(made);
  return ran;
}

Result<PassRun> ShardWork::backward(const ForwardTensors& t, const Gradients& g,
                                    const StopFlag* stop) {
  const TraceSpan span(name_.text, "backward");
  auto e = lanes::check_backward(
      name_.text, lanes::PlanSizes::of(batch_.plan()), call_shape_, t, g);
  if (!e) return e.error();
  auto pass = pass_of(true);
  if (!pass) return pass.error();
  if (auto fits = lanes::check_pass(
          name_.text, lanes::arrays_of((*pass)->call),
          {t.q.dtype, t.sink_logits.has_value(), !g.dlse.empty()});
      !fits) {
    return fits.error();
  }
  Arrays arrays;
  arrays.from = {{"q", input(t.q, true)},
                 {"k", input(t.k, false)},
                 {"v", input(t.v, false)},
                 {"out", input(as_input(t.out), true)},
                 {"dout", input(g.dout, true)}};
  add_rows(**pass, t.lse, g.dlse, arrays);
  arrays.to = {{"dq", result(g.dq, true)},
               {"dk", result(g.dk, false)},
               {"dv", result(g.dv, false)}};
  arrays.sinks = t.sink_logits;
  arrays.dsinks = g.dsink_logits;
  return run(**pass, arrays, stop);
}

Result<PassRun> ShardWork::backward(lanes::ResidentBackward& t,
                                    const StopFlag* stop) {
  const TraceSpan span(name_.text, "backward");
  auto pass = pass_of(true);
  if (!pass) return pass.error();
  auto dq = std::make_shared<DeviceParts>();
  auto dk = std::make_shared<DeviceParts>();
  auto dv = std::make_shared<DeviceParts>();
  Arrays arrays;
  arrays.there = {{"q", there(t.q)},
                  {"k", there(t.k)},
                  {"v", there(t.v)},
                  {"out", there(t.out)},
                  {"dout", there(t.dout)}};
  add_rows(**pass, t.lse, t.dlse, arrays);
  arrays.stay = {{"dq", dq.get()}, {"dk", dk.get()}, {"dv", dv.get()}};
  arrays.sinks = t.sink_logits;
  arrays.dsinks = t.dsink_logits;
  auto ran = run(**pass, arrays, stop);
  if (!ran) return ran;
  t.dq = std::move(dq);
  t.dk = std::move(dk);
  t.dv = std::move(dv);
  return ran;
}

Result<lanes::ResidentPtr> ShardWork::put(const TensorView& t, bool queries) {
  const ShardPass& pass = *passes_[0];
  const Type type = part_type(pass, t, queries);
  auto out = std::make_shared<DeviceParts>();
  for (size_t d = 0; d < open_->devices.size(); ++d) {
    const Part part = stage(pass.frame, shards_.shards[shard_of_[d]], type,
                            input(t, queries));
    auto buffer =
        pjrt::to_device(*open_->client, open_->devices[d], array_type(type),
                        part.data(), pjrt::DataStays::during_call);
    if (!buffer) return buffer.error();
    out->parts.push_back(std::move(*buffer));
  }
  return lanes::ResidentPtr(std::move(out));
}

Result<void> ShardWork::fetch(const lanes::Resident& array, bool queries,
                              const MutableTensorView& to) const {
  const DeviceParts& from = *there(&array);
  std::vector<Part> here(shards_.shards.size());
  for (size_t d = 0; d < from.parts.size(); ++d) {
    Part& part = here[shard_of_[d]];
    if (!part.empty()) continue;
    auto bytes = pjrt::byte_size(from.parts[d].type());
    if (!bytes) return bytes.error();
    part.resize(static_cast<size_t>(*bytes));
    auto e = pjrt::to_host(from.parts[d], part.data(), *bytes);
    if (!e) return e;
  }
  for (size_t s = 0; s < here.size(); ++s) {
    unstage(passes_[0]->frame, shards_.shards[s], here[s], result(to, queries));
  }
  return {};
}

}  // namespace tessera::xla
