// cli/run/lane_flags.cc: which lanes take which flags.
#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "base/fail.h"
#include "base/text.h"
#include "cli/run/options.h"

namespace tessera::cli {
namespace {

// A flag that only some lanes accept; `words` names these lanes in errors.
struct LaneFlag {
  std::optional<std::string> RunFlags::*flag;
  std::string_view name;
  uint32_t lanes;  // bit set by LaneId
  std::string_view words;
};
constexpr uint32_t bits(std::initializer_list<LaneId> lanes) {
  uint32_t out = 0;
  for (const LaneId lane : lanes) out |= 1U << static_cast<unsigned>(lane);
  return out;
}
constexpr uint32_t kCpu = bits({LaneId::cpu}), kXla = bits({LaneId::xla}),
                   kCompiled = bits({LaneId::xla, LaneId::mosaic}),
                   kExported = bits({LaneId::jax_bridge, LaneId::splash}),
                   kTiles = kCompiled | bits({LaneId::splash}),
                   kPlugin = kCompiled | kExported;
constexpr std::string_view kPluginWords = "xla, mosaic, jax_bridge or splash";
constexpr LaneFlag kLaneFlags[] = {
    {&RunFlags::threads, "--threads", kCpu, "cpu"},
    {&RunFlags::isa, "--isa", kCpu, "cpu"},
    {&RunFlags::plugin, "--plugin", kPlugin, kPluginWords},
    {&RunFlags::device, "--device", kPlugin, kPluginWords},
    {&RunFlags::method, "--method", kXla, "xla"},
    {&RunFlags::mesh, "--mesh", kCompiled, "xla or mosaic"},
    {&RunFlags::cache, "--cache", kPlugin, kPluginWords},
    {&RunFlags::max_compiles, "--max-compiles", kCompiled, "xla or mosaic"},
    {&RunFlags::lowering_reason, "--lowering-reason", kTiles,
     "xla, mosaic or splash"},
    {&RunFlags::numbers, "--numbers", bits({LaneId::mosaic}), "mosaic"},
    {&RunFlags::row_sum, "--row-sum", bits({LaneId::mosaic}), "mosaic"},
    {&RunFlags::artifact, "--artifact", kExported, "jax_bridge or splash"},
};

}  // namespace

Result<void> check_lane_flags(const RunFlags& f,
                              const std::vector<LaneId>& lanes,
                              std::string_view asked) {
  for (const LaneFlag& l : kLaneFlags) {
    const auto takes = [&](LaneId lane) {
      return (l.lanes >> static_cast<unsigned>(lane) & 1U) != 0;
    };
    if (f.*l.flag && std::none_of(lanes.begin(), lanes.end(), takes)) {
      return invalid("cli", "{} goes with --lane {}, found --lane {}", l.name,
                     l.words, asked);
    }
  }
  return {};
}

Result<void> check_choice(const RunFlags& flags, const Choice& choice,
                          const SessionOptions& asked) {
  if (asked.lane) return {};
  std::vector<LaneId> lanes = asked.fallback;
  lanes.push_back(choice.lane);
  auto e = check_lane_flags(
      flags, lanes,
      fmt::format("auto, which chose {}", to_string(choice.lane)));
  if (!e || choice.plugin.empty()) return e;
  // The rules judged this plugin and method, so no others may run.
  if (flags.plugin.value_or(choice.plugin) != choice.plugin) {
    return invalid("cli",
                   "--plugin of --lane auto must be the one that it chose, "
                   "{}, found {}",
                   choice.plugin, in_quotes(*flags.plugin));
  }
  const std::string method(to_string(choice.method));
  if (flags.method.value_or(method) != method) {
    return invalid("cli",
                   "--method of --lane auto must be the one that it chose, "
                   "{}, found {}",
                   method, in_quotes(*flags.method));
  }
  return {};
}

}  // namespace tessera::cli
