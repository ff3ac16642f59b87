// base/text.h: makes untrusted text fit for an error message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

// The text in single quotes, as valid UTF-8 without control characters: other
// bytes are written \xNN. A text longer than `max_bytes` is cut and ends in
// "...".
std::string in_quotes(std::string_view text, size_t max_bytes = 120);
// The same without quotes and uncut, for a report.
std::string on_a_line(std::string_view text);

// Bytes of the UTF-8 character that starts `text`; 0 if none does.
size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);

}  // namespace tessera
