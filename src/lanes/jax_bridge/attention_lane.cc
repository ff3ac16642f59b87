// lanes/jax_bridge/attention_lane.cc: an artifact that declares attention, as a
// session sees it. The program is JAX's, so its tiles cannot be counted.
#include "lanes/jax_bridge/attention_lane.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "lanes/jax_bridge/bound_call.h"
#include "lanes/stop.h"
#include "plan/batch_state.h"

namespace tessera::bridge {
namespace {

constexpr std::string_view kWhere = "bridge";

class Work : public lanes::LaneWork {
 public:
  Work(BridgeProgram program, BoundCall bound, HeldInputs batch)
      : program_(std::move(program)),
        batch_(std::move(batch)),
        bound_(std::move(bound)) {
    const BridgeRun& did = program_.prepared();
    facts_.kernels["forward"] = did.contract.key;
    facts_.add_compiles(did);
    facts_.compile_ms = did.compile_ms;
    facts_.transfer_ms = batch_.transfer_ms();
    facts_.artifact_digest = did.artifact_digest;
    facts_.warnings = did.warnings;
  }

  const lanes::WorkFacts& facts() const override { return facts_; }

  Result<lanes::PassRun> forward(const ForwardTensors& tensors,
                                 const StopFlag* stop) override {
    if (auto e = lanes::check_stop(stop, kWhere, "before it ran"); !e) {
      return e.error();
    }
    auto arrays = bound_.place(tensors);
    if (!arrays) return arrays.error();
    auto ran = program_.run((*arrays)->inputs, (*arrays)->outputs, batch_);
    if (!ran) return ran.error();
    if (auto e = lanes::check_stop(stop, kWhere, "after it ran"); !e) {
      return e.error();
    }
    lanes::PassRun out;
    out.run_ms = ran->run_ms;
    out.transfer_ms = ran->transfer_ms;
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
  BridgeProgram program_;
  HeldInputs batch_;  // the facts, on the device
  BoundCall bound_;
  lanes::WorkFacts facts_;
};

class AttentionLane : public lanes::OpenLane {
 public:
  AttentionLane(BridgeLane lane, BridgeArtifact artifact)
      : lane_(std::move(lane)), artifact_(std::move(artifact)) {}

  Result<std::unique_ptr<lanes::LaneWork>> prepare(
      const Batch& batch, const AttentionCall& call,
      std::unique_ptr<lanes::LaneWork>) override {
    if (call.backward) return lanes::artifact_has_no_backward(kWhere);
    if (auto read = plan::read_batch(batch, kWhere); !read) return read.error();
    auto bound = BoundCall::bind(artifact_.spec, batch.request(), batch.facts(),
                                 call.shape);
    if (!bound) return bound.error();
    auto program = lane_.prepare(artifact_.program, artifact_.spec);
    if (!program) return program.error();
    auto held = program->hold(bound->facts());
    if (!held) return held.error();
    return std::unique_ptr<lanes::LaneWork>(std::make_unique<Work>(
        std::move(*program), std::move(*bound), std::move(*held)));
  }

  double bytes(const Request& request,
               const AttentionCall& call) const override {
    return lanes::lane_bytes(LaneId::jax_bridge, request, call);
  }

  const PluginPlace* place() const override { return &lane_.place(); }

 private:
  BridgeLane lane_;
  BridgeArtifact artifact_;
};

}  // namespace

Result<std::unique_ptr<lanes::OpenLane>> open_bridge_lane(
    const lanes::LaneOptions& options) {
  if (!options.artifact) {
    return unavailable(kWhere,
                       "it needs an artifact that JAX exported, found none");
  }
  auto lane =
      BridgeLane::open({options.xla.plugin, options.xla.device,
                        options.xla.cache_folder, options.xla.max_cache_bytes});
  if (!lane) return lane.error();
  return std::unique_ptr<lanes::OpenLane>(
      std::make_unique<AttentionLane>(std::move(*lane), *options.artifact));
}

}  // namespace tessera::bridge
