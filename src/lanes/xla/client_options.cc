// lanes/xla/client_options.cc: parses name=value.
#include "lanes/xla/client_options.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "base/fail.h"
#include "base/text.h"

namespace tessera::xla {
namespace {

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number out{};
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, out);
  if (error != std::errc() || at != end) return {};
  return out;
}

}  // namespace

Result<pjrt::ClientOptions> read_client_options(
    const std::vector<std::string>& options) {
  pjrt::ClientOptions out;
  for (const std::string& option : options) {
    const size_t equals = option.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return invalid("xla", "a client option must read as name=value, found {}",
                     in_quotes(option));
    }
    const std::string name = option.substr(0, equals);
    const std::string value = option.substr(equals + 1);
    if (const auto whole = number_of<int64_t>(value)) {
      out.emplace_back(name, *whole);
    } else if (const auto real = number_of<double>(value)) {
      out.emplace_back(name, *real);
    } else if (value == "true" || value == "false") {
      out.emplace_back(name, value == "true");
    } else {
      out.emplace_back(name, value);
    }
  }
  return out;
}

}  // namespace tessera::xla
