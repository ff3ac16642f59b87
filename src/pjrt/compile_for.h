// pjrt/compile_for.h: compiles a program for a named target, without a device.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "pjrt/compile.h"
#include "pjrt/plugin.h"

namespace tessera::pjrt {

struct CompiledFor {
  const Plugin* plugin = nullptr;
  Topology topology;
  Executable executable;
  std::optional<MemoryStats> memory;  // nothing: an older plugin
  double compile_ms = 0;              // compiler only
};
Result<CompiledFor> compile_for(const PluginOptions& options,
                                const std::string& target,
                                std::string_view program);

}  // namespace tessera::pjrt
