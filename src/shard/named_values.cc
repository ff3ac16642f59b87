// shard/named_values.cc: parses names, values and numbers.
#include "shard/named_values.h"

#include <algorithm>
#include <charconv>

#include "base/fail.h"
#include "base/text.h"

namespace tessera::shard {

Result<std::vector<NamedValue>> split_named_values(std::string_view text,
                                                   std::string_view what) {
  std::vector<NamedValue> out;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view all = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = std::min(all.find('='), all.size());
    const std::string_view name = all.substr(0, equals);
    if (std::ranges::find(out, name, &NamedValue::name) != out.end()) {
      return invalid("shard", "{} must stand once, found two for {}", what,
                     in_quotes(name));
    }
    out.push_back({all, name, all.substr(std::min(equals + 1, all.size()))});
  }
  return out;
}

namespace {

template <class Number>
Result<Number> parse(std::string_view word, std::string_view what, Number least,
                     Number most) {
  Number n = 0;
  const char* const end = word.data() + word.size();
  const auto [at, error] = std::from_chars(word.data(), end, n);
  if (word.empty() || error != std::errc{} || at != end ||
      !(n >= least && n <= most)) {
    return invalid("shard", "{} must be {} to {}, found {}", what, least, most,
                   in_quotes(word));
  }
  return n;
}

}  // namespace

Result<int64_t> parse_number(std::string_view word, std::string_view what,
                             int64_t least, int64_t most) {
  return parse<int64_t>(word, what, least, most);
}

Result<double> parse_ratio(std::string_view word, std::string_view what,
                           double least, double most) {
  return parse<double>(word, what, least, most);
}

}  // namespace tessera::shard
