// lanes/xla/attention_lane.cc: the xla lane as a session sees it.
#include "lanes/xla/attention_lane.h"

#include <utility>

#include "lanes/xla/lane.h"
#include "lanes/xla/shard_lane.h"

namespace tessera::xla {
namespace {

lanes::PassRun pass_of(const XlaRun& ran) {
  lanes::PassRun out;
  out.tiles_run = ran.tiles_run;
  out.tiles_skipped = ran.tiles_skipped;
  out.pairs_run = ran.pairs_run;
  out.run_ms = ran.run_ms;
  out.transfer_ms = ran.transfer_ms;
  return out;
}

void add(const XlaRun& prepared, const char* direction, lanes::WorkFacts& out) {
  out.kernels[direction] = prepared.contract.key;
  out.lowering = prepared.lowering;
  out.add_compiles(prepared);
  out.compile_ms += prepared.compile_ms;
  out.transfer_ms += prepared.transfer_ms;
  out.warnings.insert(out.warnings.end(), prepared.warnings.begin(),
                      prepared.warnings.end());
}

class Work : public lanes::LaneWork, public lanes::ResidentWork {
 public:
  explicit Work(XlaWork work) : work_(std::move(work)) {
    for (const bool backward : {false, true}) {
      if (const XlaRun* prepared = work_.prepared(backward)) {
        add(*prepared, backward ? "backward" : "forward", facts_);
      }
    }
    if (const XlaRun* prepared = work_.prepared_sinks()) {
      add(*prepared, "sinks", facts_);
    }
  }

  const lanes::WorkFacts& facts() const override { return facts_; }

  Result<lanes::PassRun> forward(const ForwardTensors& tensors,
                                 const StopFlag* stop) override {
    auto ran = work_.forward(tensors, stop);
    if (!ran) return ran.error();
    return pass_of(*ran);
  }

  Result<lanes::PassRun> backward(const ForwardTensors& tensors,
                                  const Gradients& gradients,
                                  const StopFlag* stop) override {
    auto ran = work_.backward(tensors, gradients, stop);
    if (!ran) return ran.error();
    return pass_of(*ran);
  }

  Result<lanes::SinkRows> sink_rows(const ForwardTensors& tensors,
                                    int64_t first_keys,
                                    const StopFlag* stop) override {
    return work_.sink_rows(tensors, first_keys, stop);
  }

  lanes::ResidentWork* residents() override { return this; }
  Result<lanes::ResidentPtr> put(const TensorView& t, bool queries) override {
    return work_.put(t, queries);
  }
  Result<void> fetch(const lanes::Resident& array, bool,
                     const MutableTensorView& to) const override {
    return work_.fetch(array, to);
  }
  Result<lanes::PassRun> forward(lanes::ResidentForward& pass,
                                 const StopFlag* stop) override {
    auto ran = work_.forward(pass, stop);
    if (!ran) return ran.error();
    return pass_of(*ran);
  }
  Result<lanes::PassRun> backward(lanes::ResidentBackward& pass,
                                  const StopFlag* stop) override {
    auto ran = work_.backward(pass, stop);
    if (!ran) return ran.error();
    return pass_of(*ran);
  }

  Result<std::string> program_text(bool backward) const override {
    return work_.program_text(backward);
  }

 private:
  XlaWork work_;
  lanes::WorkFacts facts_;
};

class AttentionLane : public lanes::OpenLane {
 public:
  explicit AttentionLane(XlaLane lane) : lane_(std::move(lane)) {}

  Result<std::unique_ptr<lanes::LaneWork>> prepare(
      const Batch& batch, const AttentionCall& call,
      std::unique_ptr<lanes::LaneWork>) override {
    auto work = lane_.prepare(batch, call);
    if (!work) return work.error();
    return std::unique_ptr<lanes::LaneWork>(
        std::make_unique<Work>(std::move(*work)));
  }

  Result<lanes::WorkFacts> warm(const Request& request, const Facts& present,
                                const AttentionCall& call) override {
    lanes::WorkFacts out;
    for (const bool backward : {false, true}) {
      if (backward && !call.backward) continue;
      AttentionCall one = call;
      one.backward = backward;
      auto ran = lane_.warm(request, present, one);
      if (!ran) return ran.error();
      add(*ran, backward ? "backward" : "forward", out);
    }
    if (call.sink_telemetry) {
      auto ran = lane_.warm_sinks(request, present, call);
      if (!ran) return ran.error();
      add(*ran, "sinks", out);
    }
    return out;
  }

  double bytes(const Request& request,
               const AttentionCall& call) const override {
    const bool elsewhere = lane_.place().platform != "cpu";
    return lanes::lane_bytes(LaneId::xla, request, call, elsewhere);
  }

  const PluginPlace* place() const override { return &lane_.place(); }

 private:
  XlaLane lane_;
};

}  // namespace

Result<std::unique_ptr<lanes::OpenLane>> open_xla_lane(
    const lanes::LaneOptions& options) {
  if (options.mesh.devices() > 1) return open_shard_lane(options);
  auto lane = XlaLane::open(options.xla);
  if (!lane) return lane.error();
  return std::unique_ptr<lanes::OpenLane>(
      std::make_unique<AttentionLane>(std::move(*lane)));
}

}  // namespace tessera::xla
