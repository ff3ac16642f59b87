// cli/warnings.cc: prints warnings and errors to stderr.
#include "cli/warnings.h"

#include <fmt/format.h>

#include <cstdio>

namespace tessera::cli {

void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    print_error(fmt::format("tessera: warning: {}\n", warning));
  }
}

void print_error(const std::string& text) { std::fputs(text.c_str(), stderr); }

}  // namespace tessera::cli
