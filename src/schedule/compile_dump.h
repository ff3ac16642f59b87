// schedule/compile_dump.h: compiles a program for its dumps.
#pragma once

#include <string>
#include <vector>

#include "schedule/dump.h"

namespace tessera::schedule {

struct DumpAsk {
  std::string program;  // a file
  std::string target;
  std::string plugin;  // empty: libtpu
  std::string keep;    // a folder for the dumps; empty: they are removed
};

// The kernels of the program, compiled by the vendor in this process: once a
// process, because a plugin reads where to dump when it loads.
Result<Dump> compile_for_dump(const DumpAsk& ask);

// The same for a program's text.
Result<Dump> compile_text_for_dump(const std::string& text, const DumpAsk& ask);

}  // namespace tessera::schedule
