// cli/warnings.h: prints warnings and errors to stderr.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

// Prints one line for each warning.
void print_warnings(const std::vector<std::string>& warnings);

// Prints an error; a failure to print is ignored.
void print_error(const std::string& text);

}  // namespace tessera::cli
