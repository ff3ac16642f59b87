// cli/run/plugin_flags.h: the flags of a plugin, its device and the cache of
// its compiled programs.
#pragma once

#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/numbers.h"
#include "cli/run/cache_folder.h"

namespace tessera::cli {

// The flags, not yet parsed.
struct PluginFlags {
  std::optional<std::string> plugin, device, cache;
};

inline constexpr const char* kPluginHelp =
    "A PJRT plugin's file or known name [xla_cpu_pjrt]";
inline constexpr const char* kCacheHelp =
    "Folder that keeps what is compiled, or off [TESSERA_CACHE, or the user's "
    "cache folder]";

void add_plugin_flags(Command& command, PluginFlags& flags,
                      const char* group = kOptionsGroup,
                      const char* plugin_help = kPluginHelp,
                      const char* cache_help = kCacheHelp);

// Sets plugin, device and cache_folder of a lane's options.
template <class Options>
Result<void> read_plugin_flags(const PluginFlags& flags, Options& out) {
  if (flags.plugin) out.plugin = *flags.plugin;
  auto device = parse_device(flags.device.value_or("0"));
  if (!device) return device.error();
  out.device = *device;
  auto folder = cache_folder(flags.cache);
  if (!folder) return folder.error();
  out.cache_folder = *folder;
  return {};
}

}  // namespace tessera::cli
