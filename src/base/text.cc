// base/text.cc: makes untrusted text fit for an error message.
#include "base/text.h"

#include <cstdint>

namespace tessera {

size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return 1;
  size_t length = 0;
  uint32_t code = 0;
  uint32_t least = 0;  // a smaller code is an overlong sequence
  if ((lead & 0xe0) == 0xc0) {
    length = 2, code = lead & 0x1f, least = 0x80;
  } else if ((lead & 0xf0) == 0xe0) {
    length = 3, code = lead & 0x0f, least = 0x800;
  } else if ((lead & 0xf8) == 0xf0) {
    length = 4, code = lead & 0x07, least = 0x10000;
  } else {
    return 0;
  }
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (at(i) & 0x3f);
  }
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < least || code > 0x10ffff || surrogate ? 0 : length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string in_quotes(std::string_view text, size_t max_bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  size_t i = 0;
  while (i < text.size()) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const size_t length = utf8_length(text.substr(i));
    const bool plain =
        length > 1 || (length == 1 && byte >= 0x20 && byte != 0x7f);
    const size_t step = plain ? length : 1;
    if (i + step > max_bytes) break;
    if (plain) {
      out += text.substr(i, step);
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
    i += step;
  }
  out += "'";
  if (i < text.size()) out += "...";
  return out;
}

std::string on_a_line(std::string_view text) {
  const std::string quoted = in_quotes(text, text.size());
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace tessera
