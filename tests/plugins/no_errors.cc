// tests/plugins/no_errors.cc: a plugin whose struct ends before its functions,
// although the memory after it has some.
#include "tests/plugins/fake.h"

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api kApi = [] {
    PJRT_Api api = fake::least();
    api.struct_size = offsetof(PJRT_Api, PJRT_Error_GetCode);
    return api;
  }();
  return &kApi;
}
