// cli/program.h: runs one of a program's commands.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace tessera::cli {

// Reads the arguments, runs the command that they name and returns its exit
// code. Errors go to stderr.
int run_program(const Program& program,
                const std::vector<std::string>& arguments);

}  // namespace tessera::cli
