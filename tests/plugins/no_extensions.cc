// tests/plugins/no_extensions.cc: a real plugin that has no extensions.
#include "tests/plugins/wrapped.h"

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = [] {
    PJRT_Api a = fake::wrapped();
    a.extension_start = nullptr;
    return a;
  }();
  return &api;
}
