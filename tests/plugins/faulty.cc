// tests/plugins/faulty.cc: a plugin that fails on request (fake_client.h).
#include "tests/plugins/fake_client.h"

extern "C" int fake_alive() { return fake::alive + fake::errors_alive; }
extern "C" int fake_unread() { return fake::unread; }

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api kApi = fake::runs();
  return &kApi;
}
