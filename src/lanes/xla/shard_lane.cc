// lanes/xla/shard_lane.cc: devices are opened once, a batch is spread once.
#include "lanes/xla/shard_lane.h"

#include <utility>

#include "base/fail.h"
#include "base/trace.h"
#include "lanes/tensors.h"
#include "lanes/xla/client_options.h"
#include "lanes/xla/shard_work.h"
#include "shard/check.h"

namespace tessera::xla {
namespace {

class ShardLane : public lanes::OpenLane {
 public:
  explicit ShardLane(std::shared_ptr<const OpenMesh> open)
      : open_(std::move(open)) {}

  Result<std::unique_ptr<lanes::LaneWork>> prepare(
      const Batch& batch, const AttentionCall& call,
      std::unique_ptr<lanes::LaneWork>) override {
    const TraceSpan span("xla", "prepare");
    const lanes::PlanSizes sizes = lanes::PlanSizes::of(batch.plan());
    if (auto e = lanes::check_call("xla", sizes, call); !e) return e.error();
    auto shards = make_shards(batch, open_->options.mesh,
                              lanes::options_for(open_->options.shards, call));
    if (!shards) return shards.error();
    auto out = std::make_unique<ShardWork>(open_, batch, call.shape,
                                           std::move(*shards));
    if (auto e = out->send_integers(call); !e) return e.error();
    for (const bool backward : {false, true}) {
      if (backward && !call.backward) continue;
      if (auto e = out->add_pass(call, backward); !e) {
        return e.error();
      }
    }
    return std::unique_ptr<lanes::LaneWork>(std::move(out));
  }

  // A batch decides what each device owns, which no request tells.
  Result<lanes::WorkFacts> warm(const Request&, const Facts&,
                                const AttentionCall&) override {
    return unavailable(
        "xla",
        "a mesh must be warmed by batches (warm_all), found a request for {}",
        to_string(open_->options.mesh));
  }

  double bytes(const Request& request,
               const AttentionCall& call) const override {
    // Every array is staged for its devices.
    return lanes::lane_bytes(LaneId::xla, request, call, true);
  }

  const PluginPlace* place() const override { return &open_->place; }

 private:
  std::shared_ptr<const OpenMesh> open_;
};

}  // namespace

Result<std::unique_ptr<lanes::OpenLane>> open_shard_lane(
    const lanes::LaneOptions& options) {
  const XlaOptions& o = options.xla;
  if (o.method != XlaMethod::worklist) {
    return invalid("xla", "a mesh must run the method worklist, found {}",
                   to_string(o.method));
  }
  if (auto e = shard::check_mesh(options.mesh); !e) return e.error();
  auto client_options = read_client_options(o.client_options);
  if (!client_options) return client_options.error();
  auto on = pjrt::open_devices(o.plugin, o.device, options.mesh.devices(),
                               *client_options);
  if (!on) return on.error();
  if (options.shards.exchange == TileExchange::ragged &&
      on->client->platform() != "tpu") {
    return unavailable("xla",
                       "a ragged exchange must be on a TPU, found platform {}",
                       on->client->platform());
  }
  return std::unique_ptr<lanes::OpenLane>(std::make_unique<ShardLane>(
      std::make_shared<const OpenMesh>(options, *on->client, on->devices)));
}

}  // namespace tessera::xla
