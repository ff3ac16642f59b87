// tests/plugins.h: the plugins that tests load: fakes, and real ones where
// `make tpu` has brought them.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "pjrt/plugin.h"

// Skips a test, or all of a fixture from its SetUp, in a build that can load no
// plugin, fakes among them. The reason is what a user is told.
#define TESSERA_NEEDS_PLUGINS()                          \
  if (auto ok = ::tessera::pjrt::check_available(); !ok) \
  GTEST_SKIP() << ok.error().message

namespace tessera::testing {

// Built from tests/plugins/<name>.cc.
inline std::string fake_plugin(const std::string& name) {
  return std::string(TESSERA_FAKE_PLUGINS) + "/" + name + ".so";
}

// What a loaded fake plugin counts of itself.
inline int counted(const std::string& path, const char* function) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  auto* f =
      library ? reinterpret_cast<int (*)()>(dlsym(library, function)) : nullptr;
  return f ? f() : -1;
}

// Names of plugins are then those that .venv has, or the user's Python. Tests
// open meshes after one device: there must be threads for them from the start.
inline void look_in_venv() {
  setenv("NPROC", "32", 0);
  if (std::filesystem::exists(".venv/bin/python")) {
    setenv("TESSERA_PYTHON", ".venv/bin/python", 0);
  }
}

// Of a name: the plugin that .venv or the user's Python has.
inline Result<const pjrt::Plugin*> real_plugin(const std::string& name) {
  look_in_venv();
  return pjrt::open_plugin({name, {}});
}

// Whether a plugin was not found, which a test may skip; any other error is one
// to report.
template <class T>
bool is_absent(const Result<T>& plugin) {
  return !plugin && plugin.error().kind == ErrorKind::unavailable;
}

}  // namespace tessera::testing
