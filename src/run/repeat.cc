// run/repeat.cc: the plugin and the options to run a receipt's call again.
#include "run/repeat.h"

#include <filesystem>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "pjrt/locate.h"

namespace tessera::run {

Result<std::string> plugin_to_load(const receipt::Receipt& receipt,
                                   const std::optional<std::string>& named) {
  if (named) return *named;
  const std::string file = receipt.plugin ? receipt.plugin->file : "";
  for (const pjrt::KnownPlugin& known : pjrt::known_plugins()) {
    const auto path = pjrt::find_plugin(std::string(known.name));
    std::error_code absent;
    if (path && std::filesystem::equivalent(*path, file, absent)) return *path;
  }
  return unavailable("receipt",
                     "a receipt's plugin must be an installed one, or be named "
                     "to be loaded, found {}",
                     in_quotes(file, 1000));
}

Result<SessionOptions> options_to_repeat(
    const receipt::Receipt& claimed, SessionOptions options,
    const std::optional<std::string>& named_plugin) {
  if (!claimed.of_plan() || !claimed.ran()) {
    return unavailable("receipt",
                       "a receipt must be of attention that ran for it to run "
                       "again, found one of {}",
                       claimed.of_plan() ? "a compile alone"
                       : claimed.kind == receipt::Kind::operation
                           ? "an operation"
                           : "a training run");
  }
  auto lane = parse_lane(claimed.lane.executed);
  if (!lane) return lane.error();
  options.lane = *lane;
  options.fallback.clear();
  if (*lane == LaneId::cpu && claimed.isa) {
    auto isa = parse_isa(*claimed.isa);
    if (!isa) return isa.error();
    options.cpu.isa = *isa;
    if (claimed.threads) options.cpu.threads = *claimed.threads;
  }
  if (*lane == LaneId::xla) {
    auto method = parse_xla_method(claimed.method);
    if (!method) return method.error();
    options.xla.method = *method;
  }
  if (*lane == LaneId::mosaic) {
    auto numbers = parse_numbers(claimed.numbers);
    if (!numbers) return numbers.error();
    options.xla.numbers = *numbers;
    auto row_sum = parse_row_sum(claimed.row_sum);
    if (!row_sum) return row_sum.error();
    options.xla.row_sum = *row_sum;
  }
  options.xla.lowering_reason =
      claimed.lowering ? claimed.lowering->reason : std::nullopt;
  options.mesh = {};
  if (claimed.shards) {
    auto mesh = parse_mesh(claimed.shards->mesh);
    if (!mesh) return mesh.error();
    const receipt::Receipt::Shards& s = *claimed.shards;
    auto shards = parse_shard_options(
        {s.balance, s.exchange, s.ceilings, s.work, s.evenness, s.uneven});
    if (!shards) return shards.error();
    options.mesh = std::move(*mesh);
    options.shards = std::move(*shards);
  }
  if (claimed.plugin) {
    auto plugin = plugin_to_load(claimed, named_plugin);
    if (!plugin) return plugin.error();
    options.xla.plugin = std::move(*plugin);
    options.xla.device = claimed.plugin->number;
  }
  return options;
}

}  // namespace tessera::run
