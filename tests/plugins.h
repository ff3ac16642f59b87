// tests/plugins.h: the plugins that tests load: fakes, and real ones that
// `make tpu` installs.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "pjrt/plugin.h"

// Skips a test, or all tests of a fixture from its SetUp, in a build that
// cannot load plugins, not even fakes. The reason is the error that users see.
#define TESSERA_NEEDS_PLUGINS()                          \
  if (auto ok = ::tessera::pjrt::check_available(); !ok) \
  GTEST_SKIP() << ok.error().message

namespace tessera::testing {

// The path of the fake that is built from tests/plugins/<name>.cc.
inline std::string fake_plugin(const std::string& name) {
  return std::string(TESSERA_FAKE_PLUGINS) + "/" + name + ".so";
}

// A counter of a loaded fake plugin.
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

// The plugin of this name in .venv or in the user's Python.
inline Result<const pjrt::Plugin*> real_plugin(const std::string& name) {
  look_in_venv();
  return pjrt::open_plugin({name, {}});
}

// Whether the error is that no plugin was found, for which a test may be
// skipped. Any other error must fail the test.
template <class T>
bool is_absent(const Result<T>& plugin) {
  return !plugin && plugin.error().kind == ErrorKind::unavailable;
}

}  // namespace tessera::testing
