// cli/run/lane_flags.cc: which lanes take which flags.
#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "base/fail.h"
#include "cli/run/options.h"

namespace tessera::cli {
namespace {

// Flags that only some lanes take, which are named as an error names them.
struct LaneFlag {
  std::optional<std::string> RunFlags::*flag;
  std::string_view name;
  uint32_t lanes;  // bits by LaneId
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
    {&RunFlags::lowering_reason, "--lowering-reason", kCompiled,
     "xla or mosaic"},
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

}  // namespace tessera::cli
