// lanes/mosaic/attention_lane.cc: the TPU kernel as a session sees it: compiled
// once a contract by the plugin of a TPU that is here, its list, ids and bounds
// sent once a batch.
#include "lanes/mosaic/attention_lane.h"

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/text.h"
#include "base/timed.h"
#include "base/trace.h"
#include "lanes/program_arrays.h"
#include "lanes/stop.h"
#include "lanes/tensors.h"
#include "pjrt/compile_cache.h"
#include "pjrt/place.h"
#include "pjrt/tpu_here.h"
#include "tessera/contract.h"
#include "tessera/layouts.h"
#include "tessera/mosaic.h"

namespace tessera {
namespace {

constexpr std::string_view kPlugin = "libtpu";

// Kinds of devices that kernels are made for, as plugins name them.
struct Chip {
  std::string_view kind, target;
};
constexpr Chip kChips[] = {{"TPU v6 lite", "v6e:1x1"}};

Result<std::string> target_of(const pjrt::Place& on) {
  if (on.client->platform() != "tpu") {
    return unavailable("mosaic",
                       "a TPU must be there to run its kernel, found a {} "
                       "device",
                       on_a_line(on.client->platform()));
  }
  for (const Chip& chip : kChips) {
    if (on.device->kind == chip.kind) return std::string(chip.target);
  }
  return unavailable("mosaic", "a device must be a {}, found {}",
                     kChips[0].kind, in_quotes(on.device->kind));
}

// The plugin, its compiled programs and what they are made for.
struct Open {
  pjrt::Place on;
  PluginPlace place;
  std::string target;
  pjrt::CompileCache cache;

  Open(const XlaOptions& o, const pjrt::Place& where, std::string made_for)
      : on(where),
        place(describe(where)),
        target(std::move(made_for)),
        cache({.folder = o.cache_folder,
               .max_bytes = o.max_cache_bytes,
               .max_compiles = o.max_compiles}) {}
};

Result<std::shared_ptr<const pjrt::Loaded>> load(Open& lane,
                                                 const MosaicKernel& kernel,
                                                 WorkFacts& facts) {
  const TraceSpan span("mosaic", "program");
  auto cached = timed(facts.compile_ms, [&] {
    return lane.cache.get(*lane.on.client, *lane.on.device,
                          {kernel.contract.key, kernel.contract.text},
                          [&] { return Result<std::string>(kernel.program); });
  });
  if (!cached) return cached.error();
  facts.kernels["forward"] = kernel.contract.key;
  facts.compiles += cached->found == pjrt::Found::compiled;
  facts.memory_hits += cached->found == pjrt::Found::memory;
  facts.disk_hits += cached->found == pjrt::Found::disk;
  facts.warnings = std::move(cached->warnings);
  return std::move(cached->program);
}

Result<void> check_forward_alone(const AttentionCall& call) {
  if (!call.backward) return {};
  return invalid("mosaic", "a run must be forward alone, found backward");
}

class Work : public LaneWork {
 public:
  static Result<std::unique_ptr<LaneWork>> make(
      const std::shared_ptr<Open>& lane, const Batch& batch,
      const AttentionCall& call) {
    const TraceSpan span("mosaic", "prepare");
    if (auto e = check_forward_alone(call); !e) return e.error();
    // Room for the list is this batch's bucket, unless the request says more.
    auto contract = make_contract(batch);
    if (!contract) return contract.error();
    Request request = batch.request();
    if (request.ceilings.max_steps == 0) {
      request.ceilings.max_steps = contract->steps;
    }
    auto kernel =
        make_mosaic_kernel(request, batch.facts(), call, lane->target);
    if (!kernel) return kernel.error();
    auto arrays = make_mosaic_arrays(batch, *kernel);
    if (!arrays) return arrays.error();
    std::unique_ptr<Work> work(
        new Work(lane, batch, call, std::move(*kernel), std::move(*arrays)));
    auto program = load(*lane, work->kernel_, work->facts_);
    if (!program) return program.error();
    work->program_ = std::move(*program);
    if (auto e = work->send(); !e) return e.error();
    return std::unique_ptr<LaneWork>(std::move(work));
  }

  const WorkFacts& facts() const override { return facts_; }

  Result<PassRun> forward(const ForwardTensors& t,
                          const StopFlag* stop) override {
    const TraceSpan span("mosaic", "forward");
    const PlanSizes sizes = PlanSizes::of(batch_.plan());
    if (auto e = check_forward("mosaic", sizes, shape_, t); !e) {
      return e.error();
    }
    if (t.q.dtype != Dtype::bf16 || t.sink_logits) {
      return invalid("mosaic",
                     "arrays must be those of the call that was prepared, "
                     "found {}{} for BF16",
                     to_string(t.q.dtype),
                     t.sink_logits ? ", sink logits" : "");
    }
    if (auto e = check_stop(stop, "mosaic", "before it ran"); !e) {
      return e.error();
    }
    const int64_t batch = kernel_.batch, q_len = kernel_.q_len;
    const ArrayDims rows = {batch, shape_.heads, q_len};
    const ArrayDims q_dims = {batch, shape_.heads, q_len, shape_.head_dim};
    const ArrayDims kv_dims = {batch, shape_.kv_heads, kernel_.kv_len,
                               shape_.head_dim};
    const Staged q(t.q, q_dims), k(t.k, kv_dims), v(t.v, kv_dims);
    const std::array<ProgramOutput, 2> outputs = {
        to_tensor(t.out, q_dims),
        to_floats(t.lse,
                  t.lse.empty()
                      ? ArrayDims{}
                      : ArrayDims{sizes.batch, shape_.heads, sizes.q_len},
                  rows, {batch, shape_.heads, 1, q_len})};
    if (auto e = check_outputs("mosaic", *program_, outputs); !e) {
      return e.error();
    }
    const auto sent = [&](const char* name) {
      const pjrt::Buffer& buffer = sent_.at(name);
      return pjrt::HostArray{buffer.type(), nullptr, &buffer};
    };
    // In the order of forward_program().
    const std::array<pjrt::HostArray, 8> arrays = {
        sent("steps"),
        sent("range"),
        sent("bounds"),
        pjrt::HostArray{{Dtype::bf16, q_dims}, q.data()},
        pjrt::HostArray{{Dtype::bf16, kv_dims}, k.data()},
        pjrt::HostArray{{Dtype::bf16, kv_dims}, v.data()},
        sent("q_ids"),
        sent("kv_ids")};
    PassRun out;
    auto results =
        pjrt::send_and_execute(*program_, arrays, out.transfer_ms, out.run_ms);
    if (!results) return results.error();
    if (auto e = check_stop(stop, "mosaic", "after it ran"); !e) {
      return e.error();
    }
    auto read =
        timed(out.transfer_ms, [&] { return read_outputs(*results, outputs); });
    if (!read) return read.error();
    // The kernel counts nothing: these are its list's.
    const Worklist& w = batch_.plan().forward;
    out.tiles_run = static_cast<int64_t>(w.entries.size()) * shape_.heads;
    out.tiles_skipped =
        w.lists * w.rows * w.columns * shape_.heads - out.tiles_run;
    out.pairs_run =
        arrays_.range.back() * kernel_.tile.q * kernel_.tile.kv * shape_.heads;
    return out;
  }

  Result<PassRun> backward(const ForwardTensors&, const Gradients&,
                           const StopFlag*) override {
    return invalid("mosaic", "a run must be forward alone, found backward");
  }

  Result<std::string> program_text(bool backward) const override {
    if (backward) {
      return invalid("mosaic", "a run must be forward alone, found backward");
    }
    return kernel_.program;
  }

 private:
  Work(std::shared_ptr<Open> lane, const Batch& batch,
       const AttentionCall& call, MosaicKernel kernel, MosaicArrays arrays)
      : lane_(std::move(lane)),
        batch_(batch),
        shape_(call.shape),
        kernel_(std::move(kernel)),
        arrays_(std::move(arrays)) {}

  // The batch's integers.
  Result<void> send() {
    constexpr int64_t kLanes = 128;
    const MosaicArrays& a = arrays_;
    const int64_t batch = kernel_.batch;
    struct Array {
      const char* name;
      ArrayDims dims;
      const std::vector<int32_t>& data;
    };
    const Array all[] = {
        {"steps", {kernel_.steps}, a.steps},
        {"range", {batch + 1}, a.range},
        {"bounds", {batch + 2}, a.bounds},
        {"q_ids", {batch, kernel_.q_len / kLanes, kLanes}, a.q_ids},
        {"kv_ids", {batch, kernel_.kv_len / kLanes, kLanes}, a.kv_ids}};
    return timed(facts_.transfer_ms, [&]() -> Result<void> {
      for (const Array& array : all) {
        auto buffer =
            pjrt::to_device(*lane_->on.client, *lane_->on.device,
                            {Dtype::i32, array.dims}, array.data.data());
        if (!buffer) return buffer.error();
        sent_.emplace(array.name, std::move(*buffer));
      }
      return {};
    });
  }

  std::shared_ptr<Open> lane_;
  Batch batch_;
  AttentionShape shape_;
  MosaicKernel kernel_;
  MosaicArrays arrays_;  // which the buffers may read in place
  WorkFacts facts_;
  std::shared_ptr<const pjrt::Loaded> program_;
  std::map<std::string, pjrt::Buffer> sent_;
};

class AttentionLane : public OpenLane {
 public:
  explicit AttentionLane(std::shared_ptr<Open> open) : open_(std::move(open)) {}

  Result<std::unique_ptr<LaneWork>> prepare(
      const Batch& batch, const AttentionCall& call,
      std::unique_ptr<LaneWork>) override {
    return Work::make(open_, batch, call);
  }

  Result<WorkFacts> warm(const Request& request, const Facts& present,
                         const AttentionCall& call) override {
    if (auto e = check_forward_alone(call); !e) return e.error();
    auto kernel = make_mosaic_kernel(request, present, call, open_->target);
    if (!kernel) return kernel.error();
    WorkFacts out;
    if (auto program = load(*open_, *kernel, out); !program) {
      return program.error();
    }
    return out;
  }

  double bytes(const Request& request,
               const AttentionCall& call) const override {
    return lane_bytes(LaneId::mosaic, request, call, true);
  }

  const PluginPlace* place() const override { return &open_->place; }

 private:
  std::shared_ptr<Open> open_;
};

}  // namespace

Result<std::unique_ptr<OpenLane>> open_mosaic_lane(const LaneOptions& options) {
  // The default is for the compiler of a CPU, which has none of this.
  const std::string plugin = options.xla.plugin == XlaOptions().plugin
                                 ? std::string(kPlugin)
                                 : options.xla.plugin;
  if (plugin == kPlugin && !pjrt::is_tpu_here()) {
    return unavailable("mosaic",
                       "a TPU must be there to run its kernel, found none "
                       "(`tessera compile` needs none)");
  }
  auto place = pjrt::open_place(plugin, options.xla.device);
  if (!place) return place.error();
  auto target = target_of(*place);
  if (!target) return target.error();
  return std::unique_ptr<OpenLane>(std::make_unique<AttentionLane>(
      std::make_shared<Open>(options.xla, *place, std::move(*target))));
}

}  // namespace tessera
