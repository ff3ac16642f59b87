// picture/labels.h: formats numbers and untrusted text for display.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::picture {

std::string with_commas(int64_t n);                  // 12,345
std::string percent(int64_t part, int64_t whole);    // 12.3%
std::string ratio_text(int64_t paid, int64_t need);  // "1.25x the needed"

// The text as valid UTF-8 without control characters, cut to `limit` code
// points with a mark at the end. With `ascii`, other characters become '?'.
std::string clean_text(std::string_view text, size_t limit, bool ascii);
std::string escape_markup(std::string_view text);

}  // namespace tessera::picture
