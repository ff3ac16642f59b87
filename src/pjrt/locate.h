// pjrt/locate.h: finds the file of a plugin.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tessera/result.h"

namespace tessera::pjrt {

// A plugin that is known by the Python package that ships it.
struct KnownPlugin {
  std::string_view name;
  std::string_view package;   // the package that Python looks up
  std::string_view file;      // path below the package's folder
  std::string_view variable;  // if set, holds the path to use instead
  std::string_view install;   // its name for pip
};

std::span<const KnownPlugin> known_plugins();

// The default plugin for programs on so many CPU devices. For several devices,
// a plugin whose results are the same each time (docs/train.md).
std::string default_cpu_plugin(int64_t devices);
// `named`, or the default if that is empty.
std::string cpu_plugin(const std::string& named, int64_t devices = 1);

// The file of `plugin`, a path (it has a '/' or ends in ".so") or the name of a
// known one. A name is looked up in its variable, else with Python:
// TESSERA_PYTHON alone if it is set, else $VIRTUAL_ENV/bin/python and then
// python3 of PATH. Python locates the package without importing it. A path is
// returned unchecked.
Result<std::string> find_plugin(const std::string& plugin);

}  // namespace tessera::pjrt
