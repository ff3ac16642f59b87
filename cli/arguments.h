// cli/arguments.h: the arguments of a program, read into its commands' flags.
// arguments.cc alone knows the parser's library.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "tessera/result.h"

namespace tessera::cli {

struct ProgramText {
  std::string name;  // "tessera"
  std::string about;
  std::string footer;
};

struct Parsed {
  const Command* command = nullptr;  // whose work is asked for; null: no one's
  std::string text;                  // to print in its place: help, a version
};

// Fills what the flags of the named command point to.
Result<Parsed> parse_arguments(const ProgramText& program,
                               const std::vector<Command>& commands,
                               const std::vector<std::string>& arguments);

}  // namespace tessera::cli
