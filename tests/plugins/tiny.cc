// tests/plugins/tiny.cc: a plugin whose struct is too small for a version.
#include "tests/plugins/fake.h"

extern "C" const PJRT_Api* GetPjrtApi() {
  static const size_t kSize[2] = {sizeof kSize, 0};
  return reinterpret_cast<const PJRT_Api*>(kSize);
}
