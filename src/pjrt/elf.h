// pjrt/elf.h: checks that a file is a whole shared library, and identifies it.
#pragma once

#include <string>

#include "tessera/result.h"

namespace tessera::pjrt {

// The loader maps what the headers promise. If a file ends sooner, reading it
// is a bus error and not an error value, so the headers are checked before.
Result<void> check_library(const std::string& path);

// The build id that the linker gave an open file, as hex digits; empty if there
// is none, or if the file is no ELF file.
std::string build_id(int fd);

}  // namespace tessera::pjrt
