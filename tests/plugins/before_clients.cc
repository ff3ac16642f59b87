// tests/plugins/before_clients.cc: a plugin without functions for clients.
#include "tests/plugins/fake.h"

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api kApi = fake::least();
  return &kApi;
}
