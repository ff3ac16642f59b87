// pjrt/elf.h: is a file a whole shared library, and which?
#pragma once

#include <string>

#include "tessera/result.h"

namespace tessera::pjrt {

// The loader maps what the headers promise; where a file ends sooner, reading
// it is a bus error and not an answer. So the promise is checked before.
Result<void> check_library(const std::string& path);

// The build id that the linker gave an open file, as hex digits; empty where it
// gave none, or where the file is no ELF file.
std::string build_id(int fd);

}  // namespace tessera::pjrt
