// cli/terminal.h: the width, encoding and color support of the terminal.
#pragma once

#include <cstdint>

namespace tessera::cli {

int64_t terminal_columns();
bool locale_is_utf8();

// Whether to print colors. The last two arguments are the values of NO_COLOR
// and TERM, null if unset. A NO_COLOR that is not empty turns colors off, and
// so does a dumb terminal, which would show escapes as text.
bool shows_color(bool is_terminal, const char* no_color, const char* term);

}  // namespace tessera::cli
