// lanes/mosaic/attention_lane.cc: the session lane of the TPU kernel. The
// plugin of this machine's TPU compiles a program once a contract; a batch's
// list, ids and bounds are sent once.
#include "lanes/mosaic/attention_lane.h"

#include <fmt/format.h>

#include <algorithm>
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
#include "lanes/mosaic/kernel_steps.h"
#include "lanes/mosaic/rule.h"
#include "lanes/mosaic/settings.h"
#include "lanes/mosaic/shard_lane.h"
#include "lanes/mosaic/telemetry_rows.h"
#include "lanes/mosaic/tpu.h"
#include "lanes/program_arrays.h"
#include "lanes/tensors.h"
#include "pjrt/compile_cache.h"
#include "pjrt/place.h"
#include "tessera/batch.h"
#include "tessera/layouts.h"
#include "tessera/mosaic.h"

namespace tessera::mosaic {
namespace {

// The plugin, its compiled programs and what they are made for.
struct Open {
  pjrt::Place on;
  PluginPlace place;
  std::string target;
  KernelTerms terms;
  pjrt::CompileCache cache;

  Open(const XlaOptions& o, const pjrt::Place& where, std::string made_for)
      : on(where),
        place(describe(where)),
        target(std::move(made_for)),
        terms(terms_of(o)),
        cache({.folder = o.cache_folder,
               .max_bytes = o.max_cache_bytes,
               .max_compiles = o.max_compiles}) {}
};

using Sent = std::map<std::string_view, pjrt::Buffer>;

// One direction of a batch, ready to run.
struct Pass {
  mosaic::PlannedKernel planned;
  std::vector<MosaicArray> arrays;  // which the buffers may read in place
  int64_t steps = 0;                // of its list, including filler
  std::shared_ptr<const pjrt::Loaded> program;
  Sent sent;
  std::vector<uint8_t> live;  // of sink telemetry: queries with a legal key
};

// One call for each kernel that `call` needs, in the order in which they run.
std::vector<AttentionCall> directions_of(const AttentionCall& call) {
  std::vector<AttentionCall> out = {lanes::one_direction(call, false)};
  if (call.backward) out.push_back(lanes::one_direction(call, true));
  if (call.sink_telemetry) out.push_back(mosaic::telemetry_alone(call));
  return out;
}

// The tile is the batch's. The rest of the setting is chosen by what the
// contract holds, so that one kernel serves all batches of the contract.
Result<mosaic::PlannedKernel> plan_kernel(const Open& lane,
                                          const Request& request,
                                          const Facts& present,
                                          const AttentionCall& call,
                                          lanes::WorkFacts& facts) {
  const mosaic::ChosenSetting chosen =
      mosaic::fit_passes(request, present, call, lane.target, lane.terms);
  auto planned = mosaic::plan_kernel(request, present, call, lane.target,
                                     chosen.setting.options);
  if (!planned) return planned;
  // Sink telemetry's setting is only in its contract.
  if (!call.sink_telemetry) {
    facts.settings[direction_of(call)] =
        mosaic::setting_words(planned->kernel, chosen.chosen_by);
  }
  facts.lowering = planned->kernel.lowering;
  return planned;
}

Result<std::shared_ptr<const pjrt::Loaded>> load(
    Open& lane, const mosaic::PlannedKernel& planned, lanes::WorkFacts& facts) {
  const TraceSpan span("mosaic", "program");
  const MosaicKernel& kernel = planned.kernel;
  const auto write = [&] {
    return Result<std::string>(mosaic::write_kernel(planned).program_text);
  };
  auto cached = timed(facts.compile_ms, [&] {
    return lane.cache.get(*lane.on.client, *lane.on.device,
                          {kernel.contract.key, kernel.contract.text}, write);
  });
  if (!cached) return cached.error();
  facts.kernels[direction_of(kernel.call)] = kernel.contract.key;
  facts.add_compiles(pjrt::counts_of(cached->found));
  facts.warnings.insert(facts.warnings.end(), cached->warnings.begin(),
                        cached->warnings.end());
  return std::move(cached->program);
}

// Sends those of a batch's integer arrays that the kernel reads.
Result<Sent> send(const Open& lane, const mosaic::PlannedKernel& planned,
                  std::span<const MosaicArray> arrays) {
  const std::vector<mosaic::Argument> read = mosaic::arrays_of(planned).inputs;
  Sent out;
  for (const MosaicArray& array : arrays) {
    if (std::ranges::find(read, array.name, &mosaic::Argument::name) ==
        read.end()) {
      continue;
    }
    auto buffer =
        pjrt::to_device(*lane.on.client, *lane.on.device,
                        {Dtype::i32, array.shape}, array.values.data());
    if (!buffer) return buffer.error();
    out.emplace(array.name, std::move(*buffer));
  }
  return out;
}

Result<std::unique_ptr<Pass>> make_pass(Open& lane, const Request& request,
                                        const Batch& batch,
                                        const AttentionCall& call,
                                        lanes::WorkFacts& facts) {
  auto planned = plan_kernel(lane, request, batch.facts(), call, facts);
  if (!planned) return planned.error();
  auto arrays = make_mosaic_arrays(batch, planned->kernel);
  if (!arrays) return arrays.error();
  const int64_t steps = steps_in(planned->kernel, arrays->range);
  std::vector<uint8_t> live;
  if (call.sink_telemetry) {
    const Plan& plan = batch.plan();
    live = mosaic::live_queries(planned->kernel, *arrays,
                                plan.batch * plan.heads, plan.q_len);
  }
  auto named = named_arrays(planned->kernel, std::move(*arrays));
  auto pass = std::make_unique<Pass>(Pass{std::move(*planned),
                                          std::move(named),
                                          steps,
                                          nullptr,
                                          {},
                                          std::move(live)});
  auto program = load(lane, pass->planned, facts);
  if (!program) return program.error();
  pass->program = std::move(*program);
  auto sent = timed(facts.transfer_ms,
                    [&] { return send(lane, pass->planned, pass->arrays); });
  if (!sent) return sent.error();
  pass->sent = std::move(*sent);
  return pass;
}

class Work : public lanes::LaneWork {
 public:
  static Result<std::unique_ptr<lanes::LaneWork>> make(
      const std::shared_ptr<Open>& lane, const Batch& batch,
      const AttentionCall& call) {
    const TraceSpan span("mosaic", "prepare");
    // Unless the request sets max_steps, the kernel has room for this batch's
    // bucket.
    auto contract = make_contract(batch);
    if (!contract) return contract.error();
    Request request = batch.request();
    if (request.ceilings.max_steps == 0) {
      request.ceilings.max_steps = contract->steps;
    }
    std::unique_ptr<Work> work(new Work(lane, batch, call));
    for (const AttentionCall& one : directions_of(call)) {
      auto pass = make_pass(*lane, request, batch, one, work->facts_);
      if (!pass) return pass.error();
      (one.sink_telemetry ? work->sinks_
       : one.backward     ? work->backward_
                          : work->forward_) = std::move(*pass);
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
    if (auto e = check_arrays(t.q.dtype, t.sink_logits.has_value(), call_.dlse);
        !e) {
      return e.error();
    }
    const Sizes n = sizes_of(*forward_);
    const lanes::Staged q(t.q, n.queries), k(t.k, n.keys), v(t.v, n.values);
    const lanes::ProgramOutput outputs[] = {
        lanes::to_tensor(t.out, n.outputs),
        lanes::to_floats(t.lse, t.lse.empty() ? lanes::ArrayDims{} : n.have,
                         n.rows, n.lines)};
    std::vector<pjrt::HostArray> arrays = scalars(forward_->sent);
    add_sinks(t.sink_logits, arrays);
    arrays.push_back({{call_.dtype, n.queries}, q.data()});
    arrays.push_back({{call_.dtype, n.keys}, k.data()});
    arrays.push_back({{call_.dtype, n.values}, v.data()});
    add_ids(forward_->sent, arrays);
    return run(*forward_, arrays, outputs, batch_.plan().forward, stop);
  }

  Result<lanes::PassRun> backward(const ForwardTensors& t, const Gradients& g,
                                  const StopFlag* stop) override {
    const TraceSpan span("mosaic", "backward");
    if (!backward_) {
      return lanes::no_backward("mosaic");
    }
    const lanes::PlanSizes sizes = lanes::PlanSizes::of(batch_.plan());
    if (auto e = lanes::check_backward("mosaic", sizes, call_.shape, t, g);
        !e) {
      return e.error();
    }
    if (auto e =
            check_arrays(t.q.dtype, t.sink_logits.has_value(), !g.dlse.empty());
        !e) {
      return e.error();
    }
    const Sizes n = sizes_of(*backward_);
    // Queries beyond the batch's own see no key.
    constexpr float kNoQuery = -std::numeric_limits<float>::infinity();
    const lanes::Staged q(t.q, n.queries), k(t.k, n.keys), v(t.v, n.values),
        out(as_input(t.out), n.outputs), dout(g.dout, n.outputs),
        lse(t.lse.data(), n.have, n.rows, kNoQuery);
    std::vector<pjrt::HostArray> arrays = scalars(backward_->sent);
    add_sinks(t.sink_logits, arrays);
    arrays.insert(arrays.end(), {{{call_.dtype, n.queries}, q.data()},
                                 {{call_.dtype, n.keys}, k.data()},
                                 {{call_.dtype, n.values}, v.data()},
                                 {{call_.dtype, n.outputs}, out.data()},
                                 {{call_.dtype, n.outputs}, dout.data()},
                                 {{Dtype::f32, n.lines}, lse.data()}});
    std::optional<lanes::Staged> dlse;
    if (call_.dlse) {
      dlse.emplace(g.dlse.data(), n.have, n.rows, 0.0F);
      arrays.push_back({{Dtype::f32, n.lines}, dlse->data()});
    }
    add_ids(backward_->sent, arrays);
    std::vector<lanes::ProgramOutput> outputs = {
        lanes::to_tensor(g.dq, n.queries), lanes::to_tensor(g.dk, n.keys),
        lanes::to_tensor(g.dv, n.values)};
    if (t.sink_logits) {  // the same in every lane
      const int64_t heads = call_.shape.heads;
      outputs.push_back(lanes::to_floats(g.dsink_logits, {1, heads, 1},
                                         {1, heads, kLanes},
                                         {heads, 1, kLanes}));
    }
    return run(*backward_, arrays, outputs, batch_.plan().transposed, stop);
  }

  Result<lanes::SinkRows> sink_rows(const ForwardTensors& t, int64_t first_keys,
                                    const StopFlag* stop) override {
    const TraceSpan span("mosaic", "sink telemetry");
    const lanes::PlanSizes sizes = lanes::PlanSizes::of(batch_.plan());
    if (auto e = lanes::check_forward("mosaic", sizes, call_.shape, t); !e) {
      return e.error();
    }
    if (!sinks_) {
      return lanes::no_sink_telemetry("mosaic");
    }
    if (auto e = check_arrays(t.q.dtype, t.sink_logits.has_value(), call_.dlse);
        !e) {
      return e.error();
    }
    auto first = send_first(first_keys);
    if (!first) return first.error();
    const Sizes n = sizes_of(*sinks_);
    const lanes::Staged q(t.q, n.queries), k(t.k, n.keys);
    const auto count = static_cast<size_t>(n.have[0] * n.have[1] * n.have[2]);
    // Index 0: over all legal keys; 1: over the first keys alone.
    std::vector<float> lse[2], entropy[2];
    const Sent* const lists[] = {&sinks_->sent, &first->sent};
    for (const size_t i : {0, 1}) {
      lse[i].resize(count);
      entropy[i].resize(count);
      std::vector<pjrt::HostArray> arrays = scalars(*lists[i]);
      arrays.push_back({{call_.dtype, n.queries}, q.data()});
      arrays.push_back({{call_.dtype, n.keys}, k.data()});
      arrays.push_back(sent(*lists[i], "bits"));
      const lanes::ProgramOutput outputs[] = {
          lanes::to_floats(lse[i], n.have, n.rows, n.lines),
          lanes::to_floats(entropy[i], n.have, n.rows, n.lines)};
      double transfer_ms = 0, run_ms = 0;
      auto ran = lanes::run_program("mosaic", *sinks_->program, arrays, outputs,
                                    stop, transfer_ms, run_ms);
      if (!ran) return ran.error();
    }
    const Plan& plan = batch_.plan();
    return join_rows({lse[0], entropy[0], lse[1]}, sinks_->live,
                     plan.batch * plan.heads, call_.shape.heads, plan.q_len,
                     t.sink_logits);
  }

  Result<std::string> program_text(bool backward) const override {
    const Pass* const pass = (backward ? backward_ : forward_).get();
    if (!pass) {
      return lanes::no_backward("mosaic");
    }
    return mosaic::write_kernel(pass->planned).program_text;
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

  static pjrt::HostArray sent(const Sent& arrays, std::string_view name) {
    const pjrt::Buffer& buffer = arrays.at(name);
    return {buffer.type(), nullptr, &buffer};
  }

  // The program's arguments before the tensors; add_ids adds those after them.
  static std::vector<pjrt::HostArray> scalars(const Sent& arrays) {
    std::vector<pjrt::HostArray> out = {
        sent(arrays, "steps"), sent(arrays, "range"), sent(arrays, "bounds")};
    if (arrays.contains("bits_of")) out.push_back(sent(arrays, "bits_of"));
    return out;
  }
  static void add_sinks(const std::optional<std::span<const float>>& sinks,
                        std::vector<pjrt::HostArray>& out) {
    if (!sinks) return;
    out.push_back({{Dtype::f32, {std::ssize(*sinks)}}, sinks->data()});
  }
  static void add_ids(const Sent& arrays, std::vector<pjrt::HostArray>& out) {
    out.push_back(sent(arrays, "q_ids"));
    out.push_back(sent(arrays, "kv_ids"));
    if (arrays.contains("bits")) out.push_back(sent(arrays, "bits"));
  }

  // The list of the pairs whose mass is asked for, for the same program.
  struct List {
    std::vector<MosaicArray> arrays;  // which the buffers may read in place
    Sent sent;
  };
  Result<List> send_first(int64_t first_keys) const {
    auto first = lanes::first_keys_batch(batch_, first_keys, "mosaic");
    if (!first) return first.error();
    mosaic::PlannedKernel planned = sinks_->planned;
    planned.kernel.mask = mosaic::mask_text(first->request());
    auto arrays = make_mosaic_arrays(*first, planned.kernel);
    if (!arrays) return arrays.error();
    List out{named_arrays(planned.kernel, std::move(*arrays)), {}};
    auto sent = send(*lane_, planned, out.arrays);
    if (!sent) return sent.error();
    out.sent = std::move(*sent);
    return out;
  }

  Result<void> check_arrays(Dtype dtype, bool sink_logits, bool dlse) const {
    return lanes::check_pass("mosaic", lanes::arrays_of(call_),
                             {dtype, sink_logits, dlse});
  }

  Result<lanes::PassRun> run(const Pass& pass,
                             std::span<const pjrt::HostArray> arrays,
                             std::span<const lanes::ProgramOutput> outputs,
                             const Worklist& w, const StopFlag* stop) const {
    lanes::PassRun out;
    auto ran = lanes::run_program("mosaic", *pass.program, arrays, outputs,
                                  stop, out.transfer_ms, out.run_ms);
    if (!ran) return ran.error();
    // The kernel counts no tiles; these are the counts of its list.
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
  std::unique_ptr<Pass> forward_, backward_, sinks_;
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
    for (const AttentionCall& one : directions_of(call)) {
      auto planned = plan_kernel(*open_, request, present, one, out);
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
  if (options.mesh.devices() > 1) return open_mosaic_shard_lane(options);
  auto tpu = open_tpu(options.xla);
  if (!tpu) return tpu.error();
  return std::unique_ptr<lanes::OpenLane>(std::make_unique<AttentionLane>(
      std::make_shared<Open>(options.xla, tpu->on, std::move(tpu->target))));
}

}  // namespace tessera::mosaic
