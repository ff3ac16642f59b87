// cli/arguments.h: parses the arguments of a program into its commands' flags.
// Only arguments.cc uses the parser library.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "tessera/result.h"

namespace tessera::cli {

struct Parsed {
  const Command* command = nullptr;  // the command to run; null: print `text`
  std::string text;                  // help or version
};

// Writes the values to where the flags of the named command point.
Result<Parsed> parse_arguments(const Program& program,
                               const std::vector<std::string>& arguments);

}  // namespace tessera::cli
