// run/device_memory.cc: checks a call on a TPU against its budget.
#include "run/device_memory.h"

#include <algorithm>
#include <string>

#include "tessera/fit.h"
#include "tessera/machine.h"

namespace tessera::run {
namespace {

// A cheap estimate above what most calls need. It avoids the budget, which
// takes a fraction of a millisecond per batch. The compiler still refuses a
// call that is too large although its estimate is not.
double rough_bytes(const Request& r, const AttentionCall& call,
                   XlaMethod method) {
  constexpr double kFloat = 4, kLanes = 128, kArrays = 6, kPadding = 2;
  const auto heads = static_cast<double>(call.shape.heads);
  const auto queries = static_cast<double>(r.q_len);
  const auto keys = static_cast<double>(r.kv_len);
  const double dim =
      std::max(kLanes, static_cast<double>(std::max(call.shape.head_dim,
                                                    call.shape.v_head_dim)));
  const double arrays =
      static_cast<double>(r.batch) * (queries + keys) * dim * kArrays;
  const double scores = method == XlaMethod::worklist ? 0
                        : method == XlaMethod::chunked
                            ? queries * static_cast<double>(r.tile.kv)
                            : queries * keys;
  return kPadding * kFloat * heads * (arrays + scores);
}

Result<void> check_mesh(const Batch& batch, const AttentionCall& call,
                        LaneId lane, const lanes::LaneOptions& options,
                        const Chip& chip) {
  MeshFitCall asked;
  asked.batch = &batch;
  asked.mesh = options.mesh;
  asked.options = options.shards;
  asked.call = call;
  asked.lane = lane;
  asked.chip = chip.name;
  asked.lowering_reason = options.xla.lowering_reason;
  asked.numbers = options.xla.numbers;
  asked.row_sum = options.xla.row_sum;
  return check_room(asked);
}

}  // namespace

Result<void> check_device_memory(const Batch& batch, const AttentionCall& call,
                                 LaneId lane, const lanes::LaneOptions& options,
                                 const PluginPlace* place) {
  if (!place || (lane != LaneId::xla && lane != LaneId::mosaic)) return {};
  const auto chip = chip_of_device(place->device);
  if (!chip || rough_bytes(batch.request(), call, options.xla.method) <
                   static_cast<double>(chip->room)) {
    return {};
  }
  if (options.mesh.devices() > 1) {
    return check_mesh(batch, call, lane, options, *chip);
  }
  auto asked = fit_call(batch, call, lane, std::string(chip->name));
  if (!asked) return asked.error();
  asked->method = options.xla.method;
  asked->mosaic.lowering_reason = options.xla.lowering_reason;
  asked->mosaic.numbers = options.xla.numbers;
  asked->mosaic.row_sum = options.xla.row_sum;
  return check_room(*asked);
}

}  // namespace tessera::run
