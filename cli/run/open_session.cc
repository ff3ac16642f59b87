// cli/run/open_session.cc: the session that a run's options ask for.
#include <utility>

#include "base/fail.h"
#include "cli/run/options.h"
#include "lanes/tensors.h"
#include "receipt/machine.h"

namespace tessera::cli {
namespace {

// What a lane with kernels would refuse only when all arrays are there; `lane`
// is what errors call it.
Result<void> check_dims(const AttentionData& d, std::string_view lane) {
  for (const auto& [dim, what] :
       {std::pair(d.shape.head_dim, "--head-dim"),
        std::pair(d.shape.v_head_dim, "--v-head-dim")}) {
    if (dim % lanes::kDimStep != 0 || dim > lanes::kMaxDim) {
      return invalid("cli",
                     "{} must be a multiple of {} up to {} for --lane {}, "
                     "found {}",
                     what, lanes::kDimStep, lanes::kMaxDim, lane, dim);
    }
  }
  return {};
}

}  // namespace

Result<void> open_early(RunOptions& o) {
  SessionOptions options;
  options.lane = o.forced;
  options.fallback = o.fallback;
  options.cpu = o.lane_options.cpu;
  options.cpu.progress = [told = o.progress](double share) {
    if (*told) (*told)(share);
  };
  options.xla = o.lane_options.xla;
  options.artifact = o.lane_options.artifact;
  options.mesh = o.lane_options.mesh;
  options.shards = o.lane_options.shards;
  options.gate = o.gate;
  options.memory = [] {
    return static_cast<double>(receipt::available_memory());
  };
  if (o.fallback.empty() && o.forced != LaneId::reference &&
      o.forced != LaneId::jax_bridge && o.forced != LaneId::splash) {
    auto e = check_dims(o.data, o.forced ? to_string(*o.forced) : "auto");
    if (!e) return e;
  }
  auto session = Session::open(std::move(options));
  if (!session) return session.error();
  o.session = std::move(*session);
  return {};
}

}  // namespace tessera::cli
