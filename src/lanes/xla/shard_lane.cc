// lanes/xla/shard_lane.cc: devices are opened once, a batch is spread once.
#include "lanes/xla/shard_lane.h"

#include <utility>

#include "base/fail.h"
#include "base/trace.h"
#include "lanes/tensors.h"
#include "lanes/xla/client_options.h"
#include "lanes/xla/shard_work.h"

namespace tessera::xla {
namespace {

constexpr const char* kDeviceCount = "cpu_device_count";

int64_t count(const pjrt::Place& place) {
  return static_cast<int64_t>(place.client->devices().size());
}

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
    ShardOptions options = open_->options.shards;
    options.shape = call.shape;
    options.dtype = call.dtype;
    auto shards = make_shards(batch, open_->options.mesh, options);
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
  auto client_options = read_client_options(o.client_options);
  if (!client_options) return client_options.error();
  auto first = pjrt::open_place(o.plugin, o.device, *client_options);
  if (!first) return first.error();
  const int64_t wanted = o.device + options.mesh.devices();
  // A CPU has as many devices as it is asked for.
  if (first->client->platform() == "cpu" && count(*first) < wanted &&
      o.client_options.empty()) {
    first = pjrt::open_place(o.plugin, o.device, {{kDeviceCount, wanted}});
    if (!first) return first.error();
  }
  if (count(*first) < wanted) {
    return unavailable("xla",
                       "a mesh must have its {} devices from number {} on, "
                       "found {}",
                       options.mesh.devices(), o.device, count(*first));
  }
  const std::vector<pjrt::Device>& all = first->client->devices();
  std::vector<const pjrt::Device*> devices;
  for (int64_t i = o.device; i < wanted; ++i) {
    devices.push_back(&all[static_cast<size_t>(i)]);
  }
  return std::unique_ptr<lanes::OpenLane>(
      std::make_unique<ShardLane>(std::make_shared<const OpenMesh>(
          options, *first->client, pjrt::Devices(std::move(devices)))));
}

}  // namespace tessera::xla
