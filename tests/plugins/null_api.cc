// tests/plugins/null_api.cc: a plugin whose GetPjrtApi returns null.
#include "tests/plugins/fake.h"

extern "C" const PJRT_Api* GetPjrtApi() { return nullptr; }
