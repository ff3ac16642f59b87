// lanes/mosaic/attention_lane.cc: the TPU kernel as a session sees it: compiled
// once a contract by the plugin of a TPU that is here, its list, ids and bounds
// sent once a batch.
#include "lanes/mosaic/attention_lane.h"

#include <fmt/format.h>

#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/text.h"
#include "base/timed.h"
#include "base/trace.h"
#include "lanes/mosaic/kernel.h"
#include "lanes/mosaic/settings.h"
#include "lanes/mosaic/tpu.h"
#include "lanes/program_arrays.h"
#include "lanes/tensors.h"
#include "pjrt/compile_cache.h"
#include "pjrt/place.h"
#include "tessera/contract.h"
#include "tessera/layouts.h"
#include "tessera/mosaic.h"

namespace tessera::mosaic {
namespace {

// The plugin, its compiled programs and what they are made for.
struct Open {
  pjrt::Place on;
  PluginPlace place;
  std::string target;
  std::optional<std::string> lowering_reason;
  pjrt::CompileCache cache;

  Open(const XlaOptions& o, const pjrt::Place& where, std::string made_for)
      : on(where),
        place(describe(where)),
        target(std::move(made_for)),
        lowering_reason(o.lowering_reason),
        cache({.folder = o.cache_folder,
               .max_bytes = o.max_cache_bytes,
               .max_compiles = o.max_compiles}) {}
};

// One direction of a batch, ready to run.
struct Pass {
  mosaic::PlannedKernel planned;
  std::vector<MosaicArray> arrays;  // which the buffers may read in place
  int64_t steps = 0;                // of its list, a pass's filling included
  std::shared_ptr<const pjrt::Loaded> program;
  std::map<std::string_view, pjrt::Buffer> sent;
};

std::string direction_of(const AttentionCall& call) {
  return call.backward ? "backward" : "forward";
}

AttentionCall one_direction(AttentionCall call, bool backward) {
  call.backward = backward;
  call.dlse &= backward;
  return call;
}

// The tile is the batch's. What the kernel takes of it is looked up by what the
// contract holds, so that one kernel serves all of its batches.
Result<mosaic::PlannedKernel> plan_kernel(const Open& lane,
                                          const Request& request,
                                          const Facts& present,
                                          const AttentionCall& call,
                                          lanes::WorkFacts& facts) {
  const mosaic::ChosenSetting chosen = mosaic::choose_passes(request, call);
  MosaicOptions options = chosen.setting.options;
  options.lowering_reason = lane.lowering_reason;
  facts.settings[direction_of(call)] = fmt::format(
      "{} tiles a pass: {}", options.tiles_per_pass, chosen.chosen_by);
  auto planned =
      mosaic::plan_kernel(request, present, call, lane.target, options);
  if (planned) facts.lowering = planned->kernel.lowering;
  return planned;
}

Result<std::shared_ptr<const pjrt::Loaded>> load(
    Open& lane, const mosaic::PlannedKernel& planned, lanes::WorkFacts& facts) {
  const TraceSpan span("mosaic", "program");
  const MosaicKernel& kernel = planned.kernel;
  const auto write = [&] {
    return Result<std::string>(mosaic::write_kernel(planned).program);
  };
  auto cached = timed(facts.compile_ms, [&] {
    return lane.cache.get(*lane.on.client, *lane.on.device,
                          {kernel.contract.key, kernel.contract.text}, write);
  });
  if (!cached) return cached.error();
  facts.kernels[direction_of(kernel.call)] = kernel.contract.key;
  facts.compiles += cached->found == pjrt::Found::compiled;
  facts.memory_hits += cached->found == pjrt::Found::memory;
  facts.disk_hits += cached->found == pjrt::Found::disk;
  facts.warnings.insert(facts.warnings.end(), cached->warnings.begin(),
                        cached->warnings.end());
  return std::move(cached->program);
}

// The batch's integers.
Result<void> send(const Open& lane, Pass& pass) {
  for (const MosaicArray& array : pass.arrays) {
    auto buffer =
        pjrt::to_device(*lane.on.client, *lane.on.device,
                        {Dtype::i32, array.shape}, array.values.data());
    if (!buffer) return buffer.error();
    pass.sent.emplace(array.name, std::move(*buffer));
  }
  return {};
}

Result<std::unique_ptr<Pass>> make_pass(Open& lane, const Request& request,
                                        const Batch& batch,
                                        const AttentionCall& call,
                                        lanes::WorkFacts& facts) {
  auto planned = plan_kernel(lane, request, batch.facts(), call, facts);
  if (!planned) return planned.error();
  auto arrays = make_mosaic_arrays(batch, planned->kernel);
  if (!arrays) return arrays.error();
  const int64_t steps = arrays->range.back();
  auto named = named_arrays(planned->kernel, std::move(*arrays));
  auto pass = std::make_unique<Pass>(
      Pass{std::move(*planned), std::move(named), steps, nullptr, {}});
  auto program = load(lane, pass->planned, facts);
  if (!program) return program.error();
  pass->program = std::move(*program);
  auto sent = timed(facts.transfer_ms, [&] { return send(lane, *pass); });
  if (!sent) return sent.error();
  return pass;
}

class Work : public lanes::LaneWork {
 public:
  static Result<std::unique_ptr<lanes::LaneWork>> make(
      const std::shared_ptr<Open>& lane, const Batch& batch,
      const AttentionCall& call) {
    const TraceSpan span("mosaic", "prepare");
    // Room for the list is this batch's bucket, unless the request says more.
    auto contract = make_contract(batch);
    if (!contract) return contract.error();
    Request request = batch.request();
    if (request.ceilings.max_steps == 0) {
      request.ceilings.max_steps = contract->steps;
    }
    std::unique_ptr<Work> work(new Work(lane, batch, call));
    for (const bool backward : {false, true}) {
      if (backward && !call.backward) continue;
      auto pass = make_pass(*lane, request, batch,
                            one_direction(call, backward), work->facts_);
      if (!pass) return pass.error();
      (backward ? work->backward_ : work->forward_) = std::move(*pass);
    }
    return std::unique_ptr<lanes::LaneWork>(std::move(work));
  }

  const lanes::WorkFacts& facts() const override { return facts_; }

  Result<lanes::PassRun> forward(const ForwardTensors& t,
                                 const StopFlag* stop) override {
    const TraceSpan span("mosaic", "forward");
    const lanes::PlanSizes sizes = lanes::PlanSizes::of(batch_.plan());
    if (auto e = lanes::check_forward("mosaic", sizes, call_.shape, t); !e) {
      return e.error();
    }
    if (auto e = check_arrays(t.q.dtype, t.sink_logits.has_value()); !e) {
      return e.error();
    }
    const Sizes n = sizes_of(*forward_);
    const lanes::Staged q(t.q, n.queries), k(t.k, n.keys), v(t.v, n.values);
    const lanes::ProgramOutput outputs[] = {
        lanes::to_tensor(t.out, n.outputs),
        lanes::to_floats(t.lse, t.lse.empty() ? lanes::ArrayDims{} : n.have,
                         n.rows, n.lines)};
    std::vector<pjrt::HostArray> arrays = scalars(*forward_);
    add_sinks(t.sink_logits, arrays);
    arrays.push_back({{call_.dtype, n.queries}, q.data()});
    arrays.push_back({{call_.dtype, n.keys}, k.data()});
    arrays.push_back({{call_.dtype, n.values}, v.data()});
    add_ids(*forward_, arrays);
    return run(*forward_, arrays, outputs, batch_.plan().forward, stop);
  }

  Result<lanes::PassRun> backward(const ForwardTensors& tensors,
                                  const Gradients& gradients,
                                  const StopFlag* stop) override {
    const TraceSpan span("mosaic", "backward");
    if (!backward_) {
      return invalid("mosaic",
                     "the call must have said backward, found forward");
    }
    const lanes::BackwardTensors t =
        lanes::backward_tensors(tensors, gradients);
    const lanes::PlanSizes sizes = lanes::PlanSizes::of(batch_.plan());
    if (auto e = lanes::check_backward("mosaic", sizes, call_.shape, t); !e) {
      return e.error();
    }
    if (auto e = check_arrays(t.q.dtype, t.sink_logits.has_value()); !e) {
      return e.error();
    }
    if (t.dlse.empty() == call_.dlse) {
      return invalid("mosaic",
                     "dlse must be there where the call that was prepared "
                     "said so, found {}",
                     t.dlse.empty() ? "none" : "one");
    }
    const Sizes n = sizes_of(*backward_);
    // A query that is not there sees no key.
    constexpr float kNoQuery = -std::numeric_limits<float>::infinity();
    const lanes::Staged q(t.q, n.queries), k(t.k, n.keys), v(t.v, n.values),
        out(t.out, n.outputs), dout(t.dout, n.outputs),
        lse(t.lse.data(), n.have, n.rows, kNoQuery);
    std::vector<pjrt::HostArray> arrays = scalars(*backward_);
    add_sinks(t.sink_logits, arrays);
    arrays.insert(arrays.end(), {{{call_.dtype, n.queries}, q.data()},
                                 {{call_.dtype, n.keys}, k.data()},
                                 {{call_.dtype, n.values}, v.data()},
                                 {{call_.dtype, n.outputs}, out.data()},
                                 {{call_.dtype, n.outputs}, dout.data()},
                                 {{Dtype::f32, n.lines}, lse.data()}});
    std::optional<lanes::Staged> dlse;
    if (call_.dlse) {
      dlse.emplace(t.dlse.data(), n.have, n.rows, 0.0F);
      arrays.push_back({{Dtype::f32, n.lines}, dlse->data()});
    }
    add_ids(*backward_, arrays);
    std::vector<lanes::ProgramOutput> outputs = {
        lanes::to_tensor(t.dq, n.queries), lanes::to_tensor(t.dk, n.keys),
        lanes::to_tensor(t.dv, n.values)};
    if (t.sink_logits) {  // the same in every lane
      const int64_t heads = call_.shape.heads;
      outputs.push_back(lanes::to_floats(t.dsink_logits, {1, heads, 1},
                                         {1, heads, kLanes},
                                         {heads, 1, kLanes}));
    }
    return run(*backward_, arrays, outputs, batch_.plan().transposed, stop);
  }

  Result<std::string> program_text(bool backward) const override {
    const Pass* const pass = (backward ? backward_ : forward_).get();
    if (!pass) {
      return invalid("mosaic",
                     "the call must have said backward, found forward");
    }
    return mosaic::write_kernel(pass->planned).program;
  }

 private:
  Work(std::shared_ptr<Open> lane, const Batch& batch,
       const AttentionCall& call)
      : lane_(std::move(lane)), batch_(batch), call_(call) {}

  // Dimensions of the program's arrays; `have` those of the caller's rows.
  struct Sizes {
    lanes::ArrayDims queries, keys, values, outputs, rows, lines, have;
  };
  Sizes sizes_of(const Pass& pass) const {
    const MosaicKernel& k = pass.planned.kernel;
    const AttentionShape& s = call_.shape;
    const Plan& plan = batch_.plan();
    return {{k.batch, s.heads, k.q_len, s.head_dim},
            {k.batch, s.kv_heads, k.kv_len, s.head_dim},
            {k.batch, s.kv_heads, k.kv_len, s.v_head_dim},
            {k.batch, s.heads, k.q_len, s.v_head_dim},
            {k.batch, s.heads, k.q_len},
            {k.batch, s.heads, 1, k.q_len},
            {plan.batch, s.heads, plan.q_len}};
  }

  static pjrt::HostArray sent(const Pass& pass, std::string_view name) {
    const pjrt::Buffer& buffer = pass.sent.at(name);
    return {buffer.type(), nullptr, &buffer};
  }

  // What stands before the tensors, and behind them.
  static std::vector<pjrt::HostArray> scalars(const Pass& pass) {
    std::vector<pjrt::HostArray> out = {
        sent(pass, "steps"), sent(pass, "range"), sent(pass, "bounds")};
    if (pass.sent.contains("bits_of")) out.push_back(sent(pass, "bits_of"));
    return out;
  }
  static void add_sinks(const std::optional<std::span<const float>>& sinks,
                        std::vector<pjrt::HostArray>& out) {
    if (!sinks) return;
    out.push_back({{Dtype::f32, {std::ssize(*sinks)}}, sinks->data()});
  }
  static void add_ids(const Pass& pass, std::vector<pjrt::HostArray>& out) {
    out.push_back(sent(pass, "q_ids"));
    out.push_back(sent(pass, "kv_ids"));
    if (pass.sent.contains("bits")) out.push_back(sent(pass, "bits"));
  }

  Result<void> check_arrays(Dtype dtype, bool sink_logits) const {
    if (dtype == call_.dtype && sink_logits == call_.sink_logits) return {};
    const auto words = [](bool has) { return has ? ", sink logits" : ""; };
    return invalid("mosaic",
                   "arrays must be those of the call that was prepared, found "
                   "{}{} for {}{}",
                   to_string(dtype), words(sink_logits), to_string(call_.dtype),
                   words(call_.sink_logits));
  }

  Result<lanes::PassRun> run(const Pass& pass,
                             std::span<const pjrt::HostArray> arrays,
                             std::span<const lanes::ProgramOutput> outputs,
                             const Worklist& w, const StopFlag* stop) const {
    lanes::PassRun out;
    auto ran = lanes::run_program("mosaic", *pass.program, arrays, outputs,
                                  stop, out.transfer_ms, out.run_ms);
    if (!ran) return ran.error();
    // The kernel counts nothing: these are its list's.
    const int64_t heads = pass.planned.shape.heads_of_list();
    const Tile& tile = pass.planned.kernel.tile;
    out.tiles_run = static_cast<int64_t>(w.entries.size()) * heads;
    out.tiles_skipped = w.lists * w.rows * w.columns * heads - out.tiles_run;
    out.pairs_run = pass.steps * tile.q * tile.kv * heads;
    return out;
  }

  std::shared_ptr<Open> lane_;
  Batch batch_;
  AttentionCall call_;
  lanes::WorkFacts facts_;
  std::unique_ptr<Pass> forward_, backward_;
};

class AttentionLane : public lanes::OpenLane {
 public:
  explicit AttentionLane(std::shared_ptr<Open> open) : open_(std::move(open)) {}

  Result<std::unique_ptr<lanes::LaneWork>> prepare(
      const Batch& batch, const AttentionCall& call,
      std::unique_ptr<lanes::LaneWork>) override {
    return Work::make(open_, batch, call);
  }

  Result<lanes::WorkFacts> warm(const Request& request, const Facts& present,
                                const AttentionCall& call) override {
    lanes::WorkFacts out;
    for (const bool backward : {false, true}) {
      if (backward && !call.backward) continue;
      auto planned = plan_kernel(*open_, request, present,
                                 one_direction(call, backward), out);
      if (!planned) return planned.error();
      auto program = load(*open_, *planned, out);
      if (!program) return program.error();
    }
    return out;
  }

  double bytes(const Request& request,
               const AttentionCall& call) const override {
    return lanes::lane_bytes(LaneId::mosaic, request, call, true);
  }

  const PluginPlace* place() const override { return &open_->place; }

 private:
  std::shared_ptr<Open> open_;
};

}  // namespace

Result<std::unique_ptr<lanes::OpenLane>> open_mosaic_lane(
    const lanes::LaneOptions& options) {
  auto tpu = open_tpu(options.xla);
  if (!tpu) return tpu.error();
  return std::unique_ptr<lanes::OpenLane>(std::make_unique<AttentionLane>(
      std::make_shared<Open>(options.xla, tpu->on, std::move(tpu->target))));
}

}  // namespace tessera::mosaic
