// tests/plugins/newer_major.cc: a plugin with an unknown major API version.
#include "tests/plugins/fake.h"

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api kApi = [] {
    PJRT_Api api = fake::least();
    api.pjrt_api_version.major_version = PJRT_API_MAJOR + 1;
    api.pjrt_api_version.minor_version = 2;
    return api;
  }();
  return &kApi;
}
