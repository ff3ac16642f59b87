// lanes/xla/shard_work.cc: a batch's program and integers once, then a layer's
// arrays there, a run, and back.
#include "lanes/xla/shard_work.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/fail.h"
#include "base/timed.h"
#include "base/trace.h"
#include "lanes/program_arrays.h"
#include "lanes/stop.h"
#include "lanes/tensors.h"
#include "lanes/xla/planned.h"
#include "lanes/xla/shard_shape.h"

namespace tessera::xla {
namespace {

using lanes::PassRun;

pjrt::ArrayType array_type(const Type& type) {
  return {dtype_of(type.element), type.dims};
}

// The shard of each device: those that differ along other axes hold the same.
std::vector<size_t> shards_of_devices(const Mesh& mesh) {
  std::vector<size_t> out;
  for (int64_t device = 0; device < mesh.devices(); ++device) {
    std::map<std::string_view, int64_t> at;
    int64_t rest = device;
    for (auto axis = mesh.axes.rbegin(); axis != mesh.axes.rend(); ++axis) {
      at[axis->name] = rest % axis->size;
      rest /= axis->size;
    }
    out.push_back(static_cast<size_t>(
        (at["data"] * mesh.size("head") + at["head"]) * mesh.size("seq") +
        at["seq"]));
  }
  return out;
}

CallArray input(const TensorView& view, bool by_rows) {
  return {view, nullptr, by_rows};
}
CallArray result(const MutableTensorView& view, bool by_rows) {
  return {as_input(view), view.data, by_rows};
}
// [batch, heads, queries] floats.
TensorView numbers(const float* data, const Plan& plan, int64_t heads) {
  return TensorView::bhsd(data, Dtype::f32, plan.batch, heads, plan.q_len, 1);
}

}  // namespace

// One direction of a batch.
struct ShardWork::Pass {
  ShardShape shape;
  std::shared_ptr<const pjrt::Loaded> program;
};

ShardWork::ShardWork(std::shared_ptr<const OpenMesh> open, Batch batch,
                     AttentionShape shape, Shards shards)
    : open_(std::move(open)),
      batch_(std::move(batch)),
      call_shape_(shape),
      shards_(std::move(shards)),
      shard_of_(shards_of_devices(shards_.mesh)) {
  const ShardOptions& o = open_->options.shards;
  facts_.shards = {
      shards_.mesh,         o.balance,     o.uneven, shards_.fingerprint,
      shards_.contract_key, shards_.report};
}
ShardWork::~ShardWork() = default;

Result<std::string> ShardWork::program_text(bool backward) const {
  const auto& pass = passes_[backward ? 1 : 0];
  if (pass) return shard_program_text(pass->shape);
  return invalid("xla", "the call must have said backward, found forward");
}

Result<void> ShardWork::send_integers(const AttentionCall& call) {
  auto shape = shard_shape(batch_, shards_, call, false);
  if (!shape) return shape.error();
  auto integers = make_shard_integers(*shape, batch_, shards_);
  if (!integers) return integers.error();
  integers_ = std::move(*integers);
  return timed(facts_.transfer_ms, [&]() -> Result<void> {
    for (size_t d = 0; d < open_->devices.size(); ++d) {
      auto& of_device = sent_.emplace_back();
      for (const ShardArray& a : shard_arguments(*shape)) {
        if (!a.is_own) continue;
        auto buffer = pjrt::to_device(
            *open_->client, open_->devices[d], array_type(a.part.type),
            integers_[shard_of_[d]].at(a.part.name).data());
        if (!buffer) return buffer.error();
        of_device.emplace(a.part.name, std::move(*buffer));
      }
    }
    return {};
  });
}

Result<void> ShardWork::add_pass(const AttentionCall& call, bool backward) {
  auto pass = std::make_unique<Pass>();
  auto shape = shard_shape(batch_, shards_, call, backward);
  if (!shape) return shape.error();
  pass->shape = std::move(*shape);
  KernelChoice choice =
      call_choice(pass->shape.local, call,
                  fmt::format("{}:{}", open_->client->platform(),
                              open_->devices.front().kind));
  choice.sharding = shards_.fingerprint;
  // The terms of the shards stand for those of the plan.
  const KernelContract contract = make_kernel_contract(
      {shards_.contract_key, shards_.contract_text, {}, 0, 0, {}, {}}, choice);
  auto cached = timed(facts_.compile_ms, [&] {
    return open_->cache.get(*open_->client, open_->devices,
                            {contract.key, contract.text},
                            [&]() -> Result<std::string> {
                              return shard_program_text(pass->shape);
                            });
  });
  if (!cached) return cached.error();
  pass->program = std::move(cached->program);
  facts_.compiles += cached->found == pjrt::Found::compiled;
  facts_.memory_hits += cached->found == pjrt::Found::memory;
  facts_.disk_hits += cached->found == pjrt::Found::disk;
  facts_.kernels[backward ? "backward" : "forward"] = contract.key;
  facts_.warnings.insert(facts_.warnings.end(), cached->warnings.begin(),
                         cached->warnings.end());
  passes_[backward ? 1 : 0] = std::move(pass);
  return {};
}

Part ShardWork::stage_sinks(size_t shard, int64_t heads,
                            std::span<const float> sinks) const {
  const Shard& s = shards_.shards[shard];
  Part out(static_cast<size_t>(heads) * sizeof(float), 0);
  std::memcpy(out.data(), sinks.data() + s.first_head,
              static_cast<size_t>(s.heads) * sizeof(float));
  return out;
}

Result<std::vector<std::vector<pjrt::Buffer>>> ShardWork::execute(
    const Pass& pass, const Arrays& arrays,
    std::optional<std::span<const float>> sinks, PassRun& out) const {
  const size_t n = open_->devices.size();
  std::vector<Part> parts;
  std::vector<pjrt::Buffer> sent;
  const std::vector<ShardArray> arguments = shard_arguments(pass.shape);
  parts.reserve(n * arguments.size());
  sent.reserve(n * arguments.size());
  std::vector<pjrt::Inputs> inputs(n);
  auto ok = timed(out.transfer_ms, [&]() -> Result<void> {
    for (size_t d = 0; d < n; ++d) {
      for (const ShardArray& a : arguments) {
        if (a.is_own) {
          inputs[d].push_back(&sent_[d].at(a.part.name));
          continue;
        }
        const Dims& dims = a.part.type.dims;
        parts.push_back(a.part.name == "sink_logits"
                            ? stage_sinks(shard_of_[d], dims[0], *sinks)
                            : stage(pass.shape, shards_.shards[shard_of_[d]],
                                    a.part, arrays.at(a.part.name)));
        auto buffer =
            pjrt::to_device(*open_->client, open_->devices[d],
                            array_type(a.part.type), parts.back().data());
        if (!buffer) return buffer.error();
        sent.push_back(std::move(*buffer));
        inputs[d].push_back(&sent.back());
      }
    }
    return {};
  });
  if (!ok) return ok.error();
  return timed(out.run_ms,
               [&] { return pjrt::execute_on_all(*pass.program, inputs); });
}

Result<PassRun> ShardWork::run(const Pass& pass, const Arrays& arrays,
                               std::optional<std::span<const float>> sinks,
                               std::span<float> dsinks,
                               const StopFlag* stop) const {
  const std::vector<ShardArray> results = shard_results(pass.shape);
  std::vector<pjrt::ArrayType> types;
  for (const ShardArray& r : results) types.push_back(array_type(r.part.type));
  if (auto e = lanes::check_outputs("xla", *pass.program, types); !e) {
    return e.error();
  }
  if (auto e = lanes::check_stop(stop, "xla", "before it ran"); !e) {
    return e.error();
  }
  PassRun out;
  auto buffers = execute(pass, arrays, sinks, out);
  if (!buffers) return buffers.error();
  if (auto e = lanes::check_stop(stop, "xla", "after it ran"); !e) {
    return e.error();
  }
  // All of it is here before any of it is written.
  std::vector<std::vector<Part>> here(shards_.shards.size());
  auto ok = timed(out.transfer_ms, [&]() -> Result<void> {
    for (size_t d = 0; d < buffers->size(); ++d) {
      std::vector<Part>& parts = here[shard_of_[d]];
      if (!parts.empty()) continue;  // another device holds the same
      for (const pjrt::Buffer& b : (*buffers)[d]) {
        auto bytes = pjrt::byte_size(b.type());
        if (!bytes) return bytes.error();
        parts.emplace_back(static_cast<size_t>(*bytes));
        auto e = pjrt::to_host(b, parts.back().data(), *bytes);
        if (!e) return e;
      }
    }
    return {};
  });
  if (!ok) return ok.error();
  std::fill(dsinks.begin(), dsinks.end(), 0.0F);
  const Shape& l = pass.shape.local;
  for (size_t s = 0; s < here.size(); ++s) {
    const Shard& shard = shards_.shards[s];
    for (size_t i = 0; i < results.size(); ++i) {
      const Argument& part = results[i].part;
      const Part& from = here[s][i];
      if (part.name == "tiles") {
        int32_t tiles = 0;
        std::memcpy(&tiles, from.data(), sizeof tiles);
        out.tiles_run += tiles * std::min(l.unit_heads(), shard.heads);
      } else if (part.name == "dsink_logits") {
        const auto* const more = reinterpret_cast<const float*>(from.data());
        for (int64_t h = 0; h < shard.heads; ++h) {
          dsinks[static_cast<size_t>(shard.first_head + h)] += more[h];
        }
      } else if (const auto at = arrays.find("to_" + part.name);
                 at != arrays.end()) {
        unstage(pass.shape, shard, from, at->second);
      }
    }
    out.pairs_run += shard.steps *
                     (shard.heads / std::max<int64_t>(1, shard.lists)) *
                     shards_.tile.q * shards_.tile.kv;
  }
  const Plan& plan = batch_.plan();
  out.tiles_skipped = plan.batch * call_shape_.heads * plan.forward.rows *
                          plan.forward.columns -
                      out.tiles_run;
  return out;
}

Result<PassRun> ShardWork::forward(const ForwardTensors& t,
                                   const StopFlag* stop) {
  const TraceSpan span("xla", "forward");
  auto e = lanes::check_forward("xla", lanes::PlanSizes::of(batch_.plan()),
                                call_shape_, t);
  if (!e) return e.error();
  const Plan& plan = batch_.plan();
  const Pass& pass = *passes_[0];
  if (auto fits = check_pass(pass.shape.local, t.q.dtype,
                             t.sink_logits.has_value(), pass.shape.local.dlse);
      !fits) {
    return fits.error();
  }
  Arrays arrays = {{"q", input(t.q, true)},
                   {"k", input(t.k, false)},
                   {"v", input(t.v, false)},
                   {"to_out", result(t.out, true)}};
  if (!t.lse.empty()) {
    CallArray lse = input(numbers(t.lse.data(), plan, call_shape_.heads), true);
    lse.to = t.lse.data();
    arrays["to_lse"] = lse;
  }
  return run(pass, arrays, t.sink_logits, {}, stop);
}

Result<PassRun> ShardWork::backward(const ForwardTensors& forward,
                                    const Gradients& gradients,
                                    const StopFlag* stop) {
  const TraceSpan span("xla", "backward");
  const lanes::BackwardTensors t = lanes::backward_tensors(forward, gradients);
  auto e = lanes::check_backward("xla", lanes::PlanSizes::of(batch_.plan()),
                                 call_shape_, t);
  if (!e) return e.error();
  if (!passes_[1]) {
    return invalid("xla", "the call must have said backward, found forward");
  }
  const Plan& plan = batch_.plan();
  const Pass& pass = *passes_[1];
  if (auto fits = check_pass(pass.shape.local, t.q.dtype,
                             t.sink_logits.has_value(), !t.dlse.empty());
      !fits) {
    return fits.error();
  }
  Arrays arrays = {
      {"q", input(t.q, true)},        {"k", input(t.k, false)},
      {"v", input(t.v, false)},       {"out", input(t.out, true)},
      {"dout", input(t.dout, true)},  {"to_dq", result(t.dq, true)},
      {"to_dk", result(t.dk, false)}, {"to_dv", result(t.dv, false)}};
  CallArray lse = input(numbers(t.lse.data(), plan, call_shape_.heads), true);
  // A query that is not there has no probability for any score.
  lse.beyond = std::numeric_limits<float>::infinity();
  arrays["lse"] = lse;
  if (!t.dlse.empty()) {
    arrays["dlse"] =
        input(numbers(t.dlse.data(), plan, call_shape_.heads), true);
  }
  return run(pass, arrays, t.sink_logits, t.dsink_logits, stop);
}

}  // namespace tessera::xla
