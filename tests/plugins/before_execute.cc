// tests/plugins/before_execute.cc: a plugin whose struct ends before the
// functions that run programs, although the memory after it has functions.
#include "tests/plugins/fake_client.h"

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api kApi = [] {
    PJRT_Api api = fake::runs();
    api.struct_size = offsetof(PJRT_Api, PJRT_LoadedExecutable_Execute);
    return api;
  }();
  return &kApi;
}
