// schedule/compile_dump.h: compiles a program to get the compiler's dumps.
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
  std::vector<std::string> labels = {};  // kernels to read; empty: all
};

struct CompiledDump {
  Dump dump;
  std::optional<pjrt::MemoryStats> memory;  // older plugins do not say
  std::string platform_version;
};

// Compiles the program in this process with the vendor's compiler and reads its
// kernels. Works once per process, because a plugin reads the dump folder when
// it loads.
Result<Dump> compile_for_dump(const DumpOptions& options);

// The same for a program's text, with the memory that the compiler reports.
Result<CompiledDump> compile_and_dump(const std::string& text,
                                      const DumpOptions& options);
Result<Dump> compile_text_for_dump(const std::string& text,
                                   const DumpOptions& options);

}  // namespace tessera::schedule
