// pjrt/elf.h: is a file a whole shared library?
#pragma once

#include <string>

#include "tessera/result.h"

namespace tessera::pjrt {

// The loader maps what the headers promise; where a file ends sooner, reading
// it is a bus error and not an answer. So the promise is checked before.
Result<void> check_library(const std::string& path);

}  // namespace tessera::pjrt
