// cli/warnings.h: what is said on stderr.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

// A line each.
void print_warnings(const std::vector<std::string>& warnings);

// Where nobody can read it, it is lost.
void print_error(const std::string& text);

}  // namespace tessera::cli
