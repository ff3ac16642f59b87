// tests/plugins/null_api.cc: a plugin that gives no API.
#include "tests/plugins/fake.h"

extern "C" const PJRT_Api* GetPjrtApi() { return nullptr; }
