// pjrt/locate.h: where a plugin's file is.
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
  std::string_view package;   // the one that Python is asked for
  std::string_view file;      // below the package's folder
  std::string_view variable;  // holds a path that is taken instead
  std::string_view install;   // what pip calls it
};

std::span<const KnownPlugin> known_plugins();

// Of programs for as many devices of a CPU, where nobody names one: of several,
// one whose results are the same each time (docs/train.md).
std::string default_cpu_plugin(int64_t devices);
// The one that is named, or that one.
std::string cpu_plugin(const std::string& named, int64_t devices = 1);

// The file of `plugin`, a path (it has a '/' or ends in ".so") or the name of
// a known one. A name is looked up in its variable, else with Python:
// TESSERA_PYTHON alone where it is set, else $VIRTUAL_ENV/bin/python and then
// python3 of PATH. Python says where the package is and does not import it.
// The file of a path is not looked at.
Result<std::string> find_plugin(const std::string& plugin);

}  // namespace tessera::pjrt
