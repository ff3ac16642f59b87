// fit/mesh_fits.cc: the smallest mesh on which a call fits, by trying.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/integers.h"
#include "fit/parts.h"

namespace tessera {
namespace {

// An axis grows at most this many times; each size tried takes a plan.
constexpr int64_t kMaxTimes = 16;

MeshFitCall with_axis(const MeshFitCall& asked, std::string_view axis,
                      int64_t size) {
  MeshFitCall out = asked;
  const auto at = std::ranges::find(out.mesh.axes, axis, &MeshAxis::does);
  if (at != out.mesh.axes.end()) {
    at->size = size;
  } else {
    out.mesh.axes.push_back({std::string(axis), size});
  }
  return out;
}

}  // namespace

std::vector<Remedy> what_fits(const MeshFitCall& asked) {
  const Plan& plan = asked.batch->plan();
  std::vector<Remedy> out;
  for (const auto& [axis, most] :
       {std::pair("data", plan.batch),
        {"head", asked.call.shape.kv_heads},
        {"seq", ceil_div(plan.q_len, plan.tile.q)}}) {
    const int64_t found = asked.mesh.size(axis);
    const int64_t others = asked.mesh.devices() / found;
    const int64_t end =
        std::min({most, kMaxTimes * found, kMaxMeshDevices / others});
    for (int64_t n = 2 * found; n <= end; n *= 2) {
      const auto budget = make_budget(with_axis(asked, axis, n));
      if (!budget || !budget->fits()) continue;
      out.push_back(
          {fmt::format("devices along {}", axis), found, n, budget->needed()});
      break;
    }
  }
  return out;
}

Result<void> check_fits(const MeshFitCall& asked, const Budget& budget) {
  if (budget.fits()) return {};
  return fit::too_large(budget, what_fits(asked));
}

Result<void> check_room(const MeshFitCall& asked) {
  const auto budget = make_budget(asked);
  if (!budget || !budget->beyond_room()) return {};
  return fit::too_large(*budget, what_fits(asked));
}

}  // namespace tessera
