// lanes/xla/mesh_lane.cc: shards a batch and prepares its passes.
#include "lanes/xla/mesh_lane.h"

#include <utility>

#include "base/fail.h"
#include "base/trace.h"
#include "lanes/tensors.h"

namespace tessera::xla {
namespace {

class MeshLane : public lanes::OpenLane {
 public:
  MeshLane(LaneName name, std::shared_ptr<const OpenMesh> open,
           AddPasses add_passes)
      : name_(name),
        open_(std::move(open)),
        add_passes_(std::move(add_passes)) {}

  Result<std::unique_ptr<lanes::LaneWork>> prepare(
      const Batch& batch, const AttentionCall& call,
      std::unique_ptr<lanes::LaneWork>) override {
    const TraceSpan span(name_.text, "prepare");
    const lanes::PlanSizes sizes = lanes::PlanSizes::of(batch.plan());
    if (auto e = lanes::check_call(name_.text, sizes, call); !e) {
      return e.error();
    }
    ShardOptions options = lanes::options_for(open_->options.shards, call);
    options.for_tpu = open_->client->platform() == "tpu";
    auto shards = make_shards(batch, open_->options.mesh, options);
    if (!shards) return shards.error();
    auto out = std::make_unique<ShardWork>(name_, open_, batch, call.shape,
                                           std::move(*shards));
    if (auto e = add_passes_(*out, call); !e) return e.error();
    return std::unique_ptr<lanes::LaneWork>(std::move(out));
  }

  // What each device owns depends on the batch, not on the request alone.
  Result<lanes::WorkFacts> warm(const Request&, const Facts&,
                                const AttentionCall&) override {
    return unavailable(
        name_.text,
        "a mesh must be warmed by batches (add_call), found a request for {}",
        to_string(open_->options.mesh));
  }

  double bytes(const Request& request,
               const AttentionCall& call) const override {
    // Every array is staged once for its devices.
    return lanes::lane_bytes(name_.lane, request, call, true);
  }

  const PluginPlace* place() const override { return &open_->place; }

 private:
  LaneName name_;
  std::shared_ptr<const OpenMesh> open_;
  AddPasses add_passes_;
};

}  // namespace

std::unique_ptr<lanes::OpenLane> mesh_lane(LaneName name,
                                           std::shared_ptr<const OpenMesh> open,
                                           AddPasses add_passes) {
  return std::make_unique<MeshLane>(name, std::move(open),
                                    std::move(add_passes));
}

}  // namespace tessera::xla
