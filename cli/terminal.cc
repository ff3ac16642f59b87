// cli/terminal.cc: queries the system about standard output.
#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace tessera::cli {

int64_t terminal_columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  return 80;
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (!value || !*value) continue;
    const std::string_view v = value;
    return v.find("UTF-8") != v.npos || v.find("utf8") != v.npos;
  }
  return false;
}

bool shows_color(bool is_terminal, const char* no_color, const char* term) {
  if (no_color && *no_color) return false;
  return is_terminal && !(term && std::string_view(term) == "dumb");
}

}  // namespace tessera::cli
