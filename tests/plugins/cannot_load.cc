// tests/plugins/cannot_load.cc: a real plugin without DeserializeAndLoad.
#include "tests/plugins/wrapped.h"

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = [] {
    PJRT_Api a = fake::wrapped();
    a.PJRT_Executable_DeserializeAndLoad = nullptr;
    return a;
  }();
  return &api;
}
