// pjrt/compile_for.cc: opens the plugin, finds the target, compiles.
#include "pjrt/compile_for.h"

#include <utility>

#include "base/timed.h"
#include "plan/topology_name.h"

namespace tessera::pjrt {

Result<CompiledFor> compile_for(const PluginOptions& options,
                                const std::string& target,
                                std::string_view program) {
  // Checked before a plugin loads, which takes seconds.
  if (auto e = plan::check_sides("pjrt", target); !e) return e.error();
  if (auto e = check_available(); !e) return e.error();
  auto plugin = open_plugin(options);
  if (!plugin) return plugin.error();
  auto topology = make_topology(**plugin, target);
  if (!topology) return topology.error();
  double compile_ms = 0;
  auto executable = timed(compile_ms, [&]() -> Result<Executable> {
    auto partitions = options_of(*topology, program);
    if (!partitions) return partitions.error();
    return compile(*topology, program, *partitions);
  });
  if (!executable) return executable.error();
  CompiledFor out = {
      *plugin, std::move(*topology), std::move(*executable), {}, compile_ms};
  if (auto memory = out.executable.memory()) out.memory = *memory;
  return out;
}

}  // namespace tessera::pjrt
