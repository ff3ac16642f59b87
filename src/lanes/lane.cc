// lanes/lane.cc: the lanes that a session can open.
#include "lanes/lane.h"

#include "base/fail.h"
#include "lanes/cpu/lane.h"
#include "lanes/jax_bridge/attention_lane.h"
#include "lanes/mosaic/attention_lane.h"
#include "lanes/reference/lane.h"
#include "lanes/splash/attention_lane.h"
#include "lanes/xla/attention_lane.h"

namespace tessera::lanes {
namespace {

constexpr Lane kLanes[] = {
    {LaneId::cpu, cpu::open_cpu_lane},
    {LaneId::reference, reference::open_reference_lane},
    {LaneId::xla, xla::open_xla_lane, true},
    {LaneId::mosaic, mosaic::open_mosaic_lane, true},
    {LaneId::jax_bridge, bridge::open_bridge_lane, true},
    {LaneId::splash, splash::open_splash_lane, true},
};

}  // namespace

Result<std::string> LaneWork::program_text(bool) const {
  return unavailable("run",
                     "a lane must compile a program to give its text, found "
                     "one that compiles none");
}

Result<SinkRows> LaneWork::sink_rows(const ForwardTensors&, int64_t,
                                     const StopFlag*) {
  return unavailable(
      "run", "a lane must support sink telemetry, found one that does not");
}

Error no_backward(std::string_view where) {
  return invalid(where,
                 "a call must be prepared with backward, found forward alone");
}

Error no_sink_telemetry(std::string_view where) {
  return invalid(
      where, "a call must be prepared with sink_telemetry, found one without");
}

Error artifact_has_no_backward(std::string_view where) {
  return invalid(where,
                 "an artifact must have a backward pass to run one, found "
                 "forward alone");
}

Error artifact_has_no_text(std::string_view where) {
  return unavailable(where,
                     "a program must be text to be shown, found MLIR bytecode "
                     "that JAX exported");
}

ShardOptions options_for(ShardOptions options, const AttentionCall& call) {
  options.shape = call.shape;
  options.dtype = call.dtype;
  options.dlse = call.dlse;
  return options;
}

AttentionCall one_direction(AttentionCall call, bool backward) {
  call.backward = backward;
  call.dlse &= backward;
  call.sink_telemetry = false;
  return call;
}

Result<WorkFacts> OpenLane::warm(const Request&, const Facts&,
                                 const AttentionCall&) {
  return WorkFacts{};
}

std::span<const Lane> lanes() { return kLanes; }

int64_t legal_pairs(const Plan& plan, int64_t heads) {
  int64_t pairs = 0;
  for (const int64_t n : plan.legal_pairs) pairs += n;
  return pairs * (heads / plan.heads);
}

}  // namespace tessera::lanes
