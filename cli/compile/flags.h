// cli/compile/flags.h: the flags of `tessera compile`.
#pragma once

#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/compile/kernel_flags.h"

namespace tessera::cli {

// The flags, not yet parsed.
struct CompileFlags {
  KernelFlags kernel;
  std::optional<std::string> program, plugin, emit, out, receipt;
  bool no_compile = false;
  bool json = false;
};

// Adds the flags and the footer of the help. `flags` must outlive the command.
void add_compile_flags(Command& command, CompileFlags& flags);

// Checks which flags go together, and that no file would overwrite another.
Result<void> check_flags(const CompileFlags& flags);

// The file for the contract, next to the file of -o.
std::string contract_file(const CompileFlags& flags);

}  // namespace tessera::cli
