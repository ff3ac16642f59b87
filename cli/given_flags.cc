// cli/given_flags.cc: finds which flag was given.
#include "cli/given_flags.h"

#include <algorithm>

namespace tessera::cli {
namespace {

bool is_given(const bool* value) { return *value; }
bool is_given(const std::string* value) { return !value->empty(); }
bool is_given(const std::optional<std::string>* value) {
  return value->has_value();
}
bool is_given(const std::vector<std::string>* value) { return !value->empty(); }

}  // namespace

std::string_view first_given(const std::vector<GivenFlag>& flags) {
  const auto found = std::find_if(flags.begin(), flags.end(),
                                  [](const GivenFlag& f) { return f.given; });
  return found == flags.end() ? "" : found->name;
}

std::string first_given_of(const Command& command) {
  for (const Flag& flag : command.flags) {
    const bool given = std::visit(
        [](const auto* value) { return is_given(value); }, flag.value);
    if (!given) continue;
    const std::string_view names = flag.names;  // "-o,--out"
    return std::string(names.substr(names.rfind(',') + 1));
  }
  return "";
}

}  // namespace tessera::cli
