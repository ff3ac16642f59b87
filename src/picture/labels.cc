#include "picture/labels.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "picture/picture.h"

namespace tessera::picture {
namespace {

// The code point at the start of `t`: valid UTF-8, `bytes` long.
uint32_t code_point(std::string_view t, size_t bytes) {
  const auto first = static_cast<uint8_t>(t[0]);
  if (bytes == 1) return first;
  uint32_t v = first & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    v = v << 6 | (static_cast<uint8_t>(t[i]) & 0x3fu);
  }
  return v;
}

// Control characters, and those that reorder or end text on a screen.
bool harmful(uint32_t v) {
  return v < 0x20 || (v >= 0x7f && v < 0xa0) || v == 0x200e || v == 0x200f ||
         (v >= 0x2028 && v <= 0x202e) || (v >= 0x2066 && v <= 0x2069) ||
         v == 0xfeff || (v & 0xfffe) == 0xfffe;
}

}  // namespace

std::string with_commas(int64_t n) {
  std::string s = std::to_string(n);
  const int64_t lead = n < 0 ? 1 : 0;
  for (int64_t i = static_cast<int64_t>(s.size()) - 3; i > lead; i -= 3) {
    s.insert(static_cast<size_t>(i), ",");
  }
  return s;
}

std::string percent(int64_t part, int64_t whole) {
  if (whole == 0 || part == 0) return "0%";
  if (part == whole) return "100%";
  const double p =
      100.0 * static_cast<double>(part) / static_cast<double>(whole);
  // Rounding must not show a small part as 0%, or a large one as 100%.
  if (p < 0.01) return "<0.01%";
  if (p >= 99.95) return ">99.9%";
  return p < 1 ? fmt::format("{:.2f}%", p) : fmt::format("{:.1f}%", p);
}

std::string ratio_text(int64_t paid, int64_t need) {
  if (need == 0) return "none needed";
  return fmt::format("{:.2f}x the needed",
                     static_cast<double>(paid) / static_cast<double>(need));
}

std::string clean_text(std::string_view text, size_t limit, bool ascii) {
  std::string out;
  size_t shown = 0;
  while (!text.empty()) {
    if (shown == limit) return out + "...";
    const size_t bytes = utf8_length(text);
    const uint32_t v = bytes == 0 ? 0 : code_point(text, bytes);
    if (harmful(v) || (ascii && v >= 0x80)) {
      out += ascii ? "?" : "\xef\xbf\xbd";
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(1, bytes));
    ++shown;
  }
  return out;
}

std::string escape_markup(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::vector<std::string> titles_of_heads(
    const Plan& plan, const std::vector<std::string>& masks) {
  std::vector<std::string> out;
  const auto heads = static_cast<size_t>(plan.heads);
  out.reserve(heads);
  for (size_t h = 0; h < heads; ++h) {
    out.push_back(masks[h * masks.size() / heads]);
  }
  return out;
}

}  // namespace tessera::picture
