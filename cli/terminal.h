// cli/terminal.h: what the terminal shows and what its user asks of it.
#pragma once

#include <cstdint>

namespace tessera::cli {

int64_t terminal_columns();
bool locale_is_utf8();

// From the values of NO_COLOR and TERM, null where unset. NO_COLOR counts when
// it is not empty; a dumb terminal shows escapes as text.
bool shows_color(bool is_terminal, const char* no_color, const char* term);

}  // namespace tessera::cli
