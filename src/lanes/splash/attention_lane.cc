// lanes/splash/attention_lane.cc: runs JAX's Splash kernel with our plan. The
// kernel is compiled once per artifact, its MaskInfo is made and sent once per
// batch, and it runs once per batch row.
#include "lanes/splash/attention_lane.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/trace.h"
#include "lanes/jax_bridge/splash.h"
#include "lanes/program_arrays.h"
#include "lanes/splash/arrays.h"
#include "lanes/splash/fits.h"
#include "lanes/stop.h"
#include "lanes/tensors.h"
#include "tessera/layouts.h"
#include "tessera/machine.h"

namespace tessera::splash {
namespace {

constexpr std::string_view kWhere = "splash";

// q, k and v, then the arrays of MaskInfo and the live flags.
constexpr size_t kInputs = 9;

// A view of batch row b alone.
template <class Pointer>
BasicTensorView<Pointer> row_of(BasicTensorView<Pointer> t, int64_t b) {
  using Byte = std::conditional_t<std::is_same_v<Pointer, const void*>,
                                  const uint8_t, uint8_t>;
  t.data =
      static_cast<Byte*>(t.data) + b * t.batch_stride * byte_width(t.dtype);
  t.batch = 1;
  return t;
}

// Sends the arrays of a batch row to the device.
Result<HeldInputs> hold_row(const BridgeProgram& program, const RowArrays& r) {
  const void* const inputs[kInputs] = {nullptr,
                                       nullptr,
                                       nullptr,
                                       r.data_next.data(),
                                       r.mask_next.data(),
                                       r.block_mask.data(),
                                       r.mask_blocks.data(),
                                       r.live_queries.data(),
                                       r.live_keys.data()};
  return program.hold(inputs);
}

lanes::WorkFacts facts_of(const BridgeRun& did,
                          std::optional<Lowering> lowering) {
  lanes::WorkFacts out;
  out.lowering = std::move(lowering);
  out.kernels["forward"] = did.contract.key;
  out.add_compiles(did);
  out.compile_ms = did.compile_ms;
  out.artifact_digest = did.artifact_digest;
  out.warnings = did.warnings;
  return out;
}

class Work : public lanes::LaneWork {
 public:
  Work(BridgeProgram program, const BridgeSplash& kernel, const Batch& batch,
       std::optional<Lowering> lowering, std::vector<HeldInputs> rows)
      : program_(std::move(program)),
        kernel_(kernel),
        sizes_(lanes::PlanSizes::of(batch.plan())),
        rows_(std::move(rows)),
        facts_(facts_of(program_.prepared(), std::move(lowering))) {
    for (const HeldInputs& row : rows_) facts_.transfer_ms += row.transfer_ms();
    // The kernel does not count tiles, so these are the worklist's counts.
    const Worklist& w = batch.plan().forward;
    const int64_t heads = kernel.shape.heads / batch.plan().heads;
    counted_.tiles_run = static_cast<int64_t>(w.entries.size()) * heads;
    counted_.tiles_skipped =
        w.lists * w.rows * w.columns * heads - counted_.tiles_run;
    counted_.pairs_run = counted_.tiles_run * kernel.block_q * kernel.block_kv;
  }

  const lanes::WorkFacts& facts() const override { return facts_; }

  Result<lanes::PassRun> forward(const ForwardTensors& t,
                                 const StopFlag* stop) override {
    const TraceSpan span("splash", "forward");
    if (auto e = lanes::check_forward(kWhere, sizes_, kernel_.shape, t); !e) {
      return e.error();
    }
    if (t.q.dtype != kernel_.dtype) {
      return invalid(kWhere, "q must be the artifact's {}, found {}",
                     to_string(kernel_.dtype), to_string(t.q.dtype));
    }
    if (t.sink_logits) {
      return invalid(kWhere, "sink logits must be absent, found some");
    }
    lanes::PassRun out = counted_;
    for (size_t b = 0; b < rows_.size(); ++b) {
      if (auto e = run_row(t, static_cast<int64_t>(b), stop, out); !e) {
        return e.error();
      }
    }
    return out;
  }

  Result<lanes::PassRun> backward(const ForwardTensors&, const Gradients&,
                                  const StopFlag*) override {
    return lanes::artifact_has_no_backward(kWhere);
  }

  Result<std::string> program_text(bool) const override {
    return lanes::artifact_has_no_text(kWhere);
  }

 private:
  Result<void> run_row(const ForwardTensors& t, int64_t b, const StopFlag* stop,
                       lanes::PassRun& out) {
    if (auto e = lanes::check_stop(stop, kWhere, "before a batch row"); !e) {
      return e;
    }
    const AttentionShape& s = kernel_.shape;
    const lanes::Staged q(row_of(t.q, b),
                          {1, s.heads, kernel_.q_len, s.head_dim});
    const lanes::Staged k(row_of(t.k, b),
                          {1, s.kv_heads, kernel_.kv_len, s.head_dim});
    const lanes::Staged v(row_of(t.v, b),
                          {1, s.kv_heads, kernel_.kv_len, s.v_head_dim});
    const lanes::ArrayDims dims = {1, s.heads, kernel_.q_len, s.v_head_dim};
    const lanes::ProgramOutput made = lanes::to_tensor(row_of(t.out, b), dims);
    std::vector<uint8_t> copy;
    if (!made.to) {
      copy.resize(static_cast<size_t>(s.heads * kernel_.q_len * s.v_head_dim *
                                      byte_width(kernel_.dtype)));
    }
    const auto queries = static_cast<size_t>(s.heads * kernel_.q_len);
    std::vector<float> unasked(t.lse.empty() ? queries : 0);
    float* const lse = t.lse.empty()
                           ? unasked.data()
                           : t.lse.data() + static_cast<size_t>(b) * queries;
    // The row's other inputs are on the device already.
    const void* const inputs[kInputs] = {q.data(), k.data(), v.data()};
    void* const outputs[] = {made.to ? made.to : copy.data(), lse};
    auto ran = program_.run(inputs, outputs, rows_[static_cast<size_t>(b)]);
    if (!ran) return ran.error();
    if (!made.to) made.copy(copy.data());
    out.run_ms += ran->run_ms;
    out.transfer_ms += ran->transfer_ms;
    return lanes::check_stop(stop, kWhere, "after it ran");
  }

  BridgeProgram program_;
  BridgeSplash kernel_;
  lanes::PlanSizes sizes_;
  std::vector<HeldInputs> rows_;  // by batch row
  lanes::WorkFacts facts_;
  lanes::PassRun counted_;
};

class SplashLane : public lanes::OpenLane {
 public:
  SplashLane(BridgeLane lane, BridgeArtifact artifact, BridgeSplash kernel,
             std::optional<std::string> lowering_reason)
      : lane_(std::move(lane)),
        artifact_(std::move(artifact)),
        kernel_(kernel),
        lowering_reason_(std::move(lowering_reason)) {}

  Result<std::unique_ptr<lanes::LaneWork>> prepare(
      const Batch& batch, const AttentionCall& call,
      std::unique_ptr<lanes::LaneWork>) override {
    const TraceSpan span("splash", "prepare");
    if (call.backward) return lanes::artifact_has_no_backward(kWhere);
    auto fits = check_fits(batch.request(), batch.facts(), call);
    if (!fits) return fits.error();
    auto lowering = lower(batch.request());
    if (!lowering) return lowering.error();
    std::vector<SplashMaskInfo> infos;
    infos.reserve(static_cast<size_t>(batch.request().batch));
    for (int64_t b = 0; b < batch.request().batch; ++b) {
      auto info = make_info(batch, b, kernel_);
      if (!info) return info.error();
      infos.push_back(std::move(*info));
    }
    // The program comes first, since it checks the sizes in the file of shapes,
    // to which the arrays are padded.
    auto program = lane_.prepare(artifact_.program, artifact_.spec);
    if (!program) return program.error();
    std::vector<HeldInputs> rows;
    rows.reserve(infos.size());
    for (SplashMaskInfo& info : infos) {
      auto row =
          hold_row(*program, make_arrays(std::exchange(info, {}), kernel_));
      if (!row) return row.error();
      rows.push_back(std::move(*row));
    }
    return std::unique_ptr<lanes::LaneWork>(
        std::make_unique<Work>(std::move(*program), kernel_, batch,
                               std::move(*lowering), std::move(rows)));
  }

  // Every batch needs the same program, that of the artifact.
  Result<lanes::WorkFacts> warm(const Request& request, const Facts& present,
                                const AttentionCall& call) override {
    auto fits = check_fits(request, present, call);
    if (!fits) return fits.error();
    auto lowering = lower(request);
    if (!lowering) return lowering.error();
    auto program = lane_.prepare(artifact_.program, artifact_.spec);
    if (!program) return program.error();
    return facts_of(program->prepared(), std::move(*lowering));
  }

  double bytes(const Request& request,
               const AttentionCall& call) const override {
    return lanes::lane_bytes(LaneId::splash, request, call);
  }

  const PluginPlace* place() const override { return &lane_.place(); }

 private:
  Result<void> check_fits(const Request& request, const Facts& present,
                          const AttentionCall& call) const {
    CallFeatures asked;
    asked.dtype = call.dtype;
    const auto why =
        misfit(kernel_, features_of(request, present, call.shape, asked));
    if (!why) return {};
    return invalid(kWhere, "a call must be what the artifact is for, found {}",
                   *why);
  }

  // On a TPU, the artifact's blocks as lowered to its matrix unit.
  Result<std::optional<Lowering>> lower(const Request& request) const {
    const auto chip = chip_of_device(lane_.place().device);
    if (!chip) return std::optional<Lowering>();
    auto lowering = lower_tile(kWhere, {kernel_.block_q, kernel_.block_kv},
                               request.logical_block, *chip, lowering_reason_);
    if (!lowering) return lowering.error();
    return std::optional(std::move(*lowering));
  }

  BridgeLane lane_;
  BridgeArtifact artifact_;
  BridgeSplash kernel_;
  std::optional<std::string> lowering_reason_;
};

}  // namespace

Result<std::unique_ptr<lanes::OpenLane>> open_splash_lane(
    const lanes::LaneOptions& options) {
  if (!options.artifact) {
    return unavailable(kWhere,
                       "the lane must be given Splash's kernel as JAX exported "
                       "it, found none");
  }
  auto kernel = bridge::splash_of(options.artifact->spec);
  if (!kernel) return kernel.error();
  auto lane =
      BridgeLane::open({options.xla.plugin, options.xla.device,
                        options.xla.cache_folder, options.xla.max_cache_bytes});
  if (!lane) return lane.error();
  return std::unique_ptr<lanes::OpenLane>(
      std::make_unique<SplashLane>(std::move(*lane), *options.artifact, *kernel,
                                   options.xla.lowering_reason));
}

}  // namespace tessera::splash
