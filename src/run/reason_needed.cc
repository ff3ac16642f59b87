// run/reason_needed.cc: applies the lanes' lowering rules without a batch.
#include "run/reason_needed.h"

#include <algorithm>

#include "lanes/xla/planned.h"

namespace tessera::run {
namespace {

std::optional<std::string> refusal(const auto& lowering) {
  if (lowering) return {};
  return lowering.error().message;
}

}  // namespace

std::optional<std::string> reason_needed(const Choice& choice,
                                         const Request& request,
                                         const Machine& machine) {
  const auto on =
      std::ranges::find(machine.plugins, choice.plugin, &MachinePlugin::name);
  if (on == machine.plugins.end() || on->generation.empty()) return {};
  const auto chip = find_chip(on->generation);
  if (!chip) return {};
  // A Splash artifact that was chosen has the request's tile.
  if (choice.lane == LaneId::mosaic || choice.lane == LaneId::splash) {
    return refusal(lower_tile(to_string(choice.lane), request.tile,
                              request.logical_block, *chip, {}));
  }
  if (choice.lane != LaneId::xla) return {};
  return refusal(
      xla::lower_on(xla::request_shape(request, choice.method), *chip, {}));
}

}  // namespace tessera::run
