// tests/plugins/fails.cc: a plugin that fails to initialize. Its error has the
// number of attempts.
#include "tests/plugins/fake.h"

namespace {

int asked = 0;

PJRT_Error* fail(PJRT_Plugin_Initialize_Args*) {
  return fake::error(PJRT_Error_Code_UNAVAILABLE,
                     "no device, asked " + std::to_string(++asked) + "\nmore");
}

}  // namespace

extern "C" int fake_errors_alive() { return fake::errors_alive; }

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api kApi = [] {
    PJRT_Api api = fake::least();
    api.PJRT_Plugin_Initialize = fail;
    return api;
  }();
  return &kApi;
}
