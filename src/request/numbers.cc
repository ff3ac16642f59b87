// request/numbers.cc: strict parsing: the whole text must be a number.
#include "request/numbers.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "base/fail.h"
#include "base/text.h"

namespace tessera::request {
namespace {

// NaN if the text is not a finite number.
double finite_number(std::string_view text) {
  const std::string_view word = trim(text);
  double value = 0;
  const auto [end, code] =
      std::from_chars(word.data(), word.data() + word.size(), value);
  const bool whole = code == std::errc{} && end == word.data() + word.size();
  return whole && std::isfinite(value)
             ? value
             : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

Result<int64_t> parse_int(std::string_view text, std::string_view what,
                          int64_t least, int64_t most) {
  const std::string_view word = trim(text);
  int64_t value = 0;
  const auto [end, code] =
      std::from_chars(word.data(), word.data() + word.size(), value);
  if (code == std::errc::invalid_argument || end != word.data() + word.size()) {
    return invalid("cli", "{} must be an integer, found {}", what,
                   in_quotes(text));
  }
  if (code != std::errc{} || value < least || value > most) {
    return invalid("cli", "{} must be from {} to {}, found {}", what, least,
                   most, word);
  }
  return value;
}

Result<double> parse_positive(std::string_view text, std::string_view what) {
  const double value = finite_number(text);
  if (value > 0) return value;
  return invalid("cli", "{} must be a finite number above 0, found {}", what,
                 in_quotes(text));
}

Result<double> parse_from_zero(std::string_view text, std::string_view what) {
  const double value = finite_number(text);
  if (value >= 0) return value;
  return invalid("cli", "{} must be a finite number of at least 0, found {}",
                 what, in_quotes(text));
}

Result<std::vector<int32_t>> parse_ints(std::string_view text,
                                        std::string_view what, int64_t least,
                                        int64_t most) {
  std::vector<int32_t> values;
  for (std::string_view part : split(text, ',')) {
    auto value = parse_int(part, what, least, most);
    if (!value) return value.error();
    values.push_back(static_cast<int32_t>(*value));
  }
  return values;
}

Result<void> take_once(std::set<std::string_view>& seen, std::string_view name,
                       const char* where, std::string_view what) {
  if (seen.insert(name).second) return {};
  return invalid(where, "{} takes each name once, found {} twice", what, name);
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace tessera::request
