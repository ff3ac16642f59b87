// cli/run/open_session.cc: opens the session for a run's options.
#include <utility>

#include "base/fail.h"
#include "cli/run/options.h"
#include "lanes/tensors.h"
#include "receipt/machine.h"

namespace tessera::cli {
namespace {

// Refuses head dims early that a lane with kernels would refuse only after all
// arrays are made. `lane` is its name in errors.
Result<void> check_dims(const request::AttentionData& d,
                        std::string_view lane) {
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
  SessionOptions options = o.lanes;
  options.cpu.progress = [told = o.progress](double share) {
    if (*told) (*told)(share);
  };
  options.memory = [] {
    return static_cast<double>(receipt::available_memory());
  };
  const std::optional<LaneId>& lane = o.lanes.lane;
  if (o.lanes.fallback.empty() && lane != LaneId::reference &&
      lane != LaneId::jax_bridge && lane != LaneId::splash) {
    auto e = check_dims(o.data, lane ? to_string(*lane) : "auto");
    if (!e) return e;
  }
  auto session = Session::open(std::move(options));
  if (!session) return session.error();
  o.session = std::move(*session);
  return {};
}

}  // namespace tessera::cli
