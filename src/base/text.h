// base/text.h: strangers' text made fit for an error message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

// In single quotes, always valid UTF-8 without control characters: other bytes
// are written \xNN. Longer than `max_bytes` is cut and ends in "...".
std::string in_quotes(std::string_view text, size_t max_bytes = 120);
// The whole of it without quotes, for a report.
std::string on_a_line(std::string_view text);

// Bytes of the UTF-8 character that starts `text`; 0 where none does.
size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);

}  // namespace tessera
