// pjrt/compile_for.h: a program compiled for a target by name, with no device.
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
  std::optional<MemoryStats> memory;  // older plugins do not say
  double compile_ms = 0;              // of the compiler alone
};
Result<CompiledFor> compile_for(const PluginOptions& options,
                                const std::string& target,
                                std::string_view program);

}  // namespace tessera::pjrt
