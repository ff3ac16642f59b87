// cli/compile/flags.h: what `tessera compile` is asked.
#pragma once

#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/compile/kernel_flags.h"

namespace tessera::cli {

// As typed.
struct CompileFlags {
  KernelFlags kernel;
  std::optional<std::string> program, plugin, emit, out, receipt;
  bool no_compile = false;
  bool json = false;
};

// And what its help ends with. `flags` must outlive the command.
void add_compile_flags(Command& command, CompileFlags& flags);

// Which flags go together, and that no file is written over.
Result<void> check_flags(const CompileFlags& flags);

// Beside -o, for a request.
std::string contract_file(const CompileFlags& flags);

}  // namespace tessera::cli
