// cli/program.h: the program `tessera`, as a function.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

// Runs one command line and returns its exit code (cli/command.h).
int run_program(const std::vector<std::string>& arguments);

}  // namespace tessera::cli
