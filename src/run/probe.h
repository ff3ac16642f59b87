// run/probe.h: what there is to know about a plugin on this machine.
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
  std::string generation;  // of its TPUs, where all are of one that we know
  std::string why;         // what is missing, where something is
};

// Loads it and asks for its devices, except libtpu where there is no TPU.
PluginProbe probe_plugin(const std::string& name);

}  // namespace tessera::run
