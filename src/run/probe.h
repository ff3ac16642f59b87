// run/probe.h: looks at a plugin on this machine.
#pragma once

#include <string>
#include <vector>

namespace tessera::run {

struct PluginProbe {
  std::string name;
  std::string file;  // empty: not found
  std::string api;   // "0.81"; empty: it could not be loaded
  std::string platform, platform_version;
  std::vector<std::string> devices;
  std::string generation;  // of its TPUs, if all are of one known generation
  std::string why;         // what is missing; empty: nothing
};

// Loads the plugin and lists its devices; libtpu's only if there is a TPU.
PluginProbe probe_plugin(const std::string& name);

}  // namespace tessera::run
