// cli/run/plugin_flags.cc: names and help of the flags.
#include "cli/run/plugin_flags.h"

namespace tessera::cli {

void add_plugin_flags(Command& command, PluginFlags& f, const char* group,
                      const char* plugin_help, const char* cache_help) {
  add_flags(
      command, group,
      {
          {"--plugin", &f.plugin, "NAME", plugin_help},
          {"--device", &f.device, "N", "Number of the plugin's device [0]"},
          {"--cache", &f.cache, "FOLDER", cache_help},
      });
}

}  // namespace tessera::cli
