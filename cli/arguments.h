// cli/arguments.h: the arguments of a program, read into its commands' flags.
// arguments.cc alone knows the parser's library.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "tessera/result.h"

namespace tessera::cli {

struct Parsed {
  const Command* command = nullptr;  // of the program: its work is asked for
  std::string text;                  // else what to print: help, a version
};

// Fills what the flags of the named command point to.
Result<Parsed> parse_arguments(const Program& program,
                               const std::vector<std::string>& arguments);

}  // namespace tessera::cli
