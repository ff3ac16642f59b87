// schedule/compile_dump.h: compiles a program for its dumps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pjrt/compile.h"
#include "schedule/dump.h"

namespace tessera::schedule {

struct DumpOptions {
  std::string program;  // a file
  std::string target;
  std::string plugin;  // empty: libtpu
  std::string keep;    // a folder for the dumps; empty: they are removed
  std::vector<std::string> labels = {};  // of the kernels to read; none: all
};

struct CompiledDump {
  Dump dump;
  std::optional<pjrt::MemoryStats> memory;  // older plugins do not say
  std::string platform_version;
};

// The kernels of the program, compiled by the vendor in this process: once a
// process, because a plugin reads where to dump when it loads.
Result<Dump> compile_for_dump(const DumpOptions& options);

// The same for a program's text, and what the compiler says of its memory.
Result<CompiledDump> compile_and_dump(const std::string& text,
                                      const DumpOptions& options);
Result<Dump> compile_text_for_dump(const std::string& text,
                                   const DumpOptions& options);

}  // namespace tessera::schedule
