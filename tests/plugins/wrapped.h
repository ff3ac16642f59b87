// tests/plugins/wrapped.h: a real plugin whose functions can be replaced.
#pragma once

#include <dlfcn.h>
#include <pjrt_c_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace fake {

// The environment variable with the path of the real plugin.
inline constexpr const char* kWrapped = "TESSERA_TEST_WRAPPED_PLUGIN";

// A copy of its functions; struct_size is 0 if it does not load.
inline PJRT_Api wrapped() {
  PJRT_Api api = {};
  const char* path = std::getenv(kWrapped);
  void* library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!library) return api;
  auto* get =
      reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
  const PJRT_Api* real = get ? get() : nullptr;
  if (!real) return api;
  std::memcpy(&api, real, std::min(real->struct_size, sizeof api));
  api.struct_size = std::min(real->struct_size, sizeof api);
  return api;
}

}  // namespace fake
