// tests/plugins/cannot_serialize.cc: a real plugin that serializes no program.
#include "tests/plugins/wrapped.h"

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = [] {
    PJRT_Api a = fake::wrapped();
    a.PJRT_Executable_Serialize = nullptr;
    return a;
  }();
  return &api;
}
