// tests/json_fields.cc: compares the paths of a list and of a JSON object.
#include "tests/json_fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "request/numbers.h"

namespace tessera::testing {
namespace {

using nlohmann::json;
using Path = std::vector<std::string>;

// Splits names at commas that are outside of braces.
std::vector<std::string> names_of(std::string_view names) {
  std::vector<std::string> out(1);
  int depth = 0;
  for (const char c : names) {
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (c == ',' && depth == 0) {
      out.emplace_back();
    } else if (c != ' ' && c != '[' && c != ']') {
      out.back() += c;
    }
  }
  return out;
}

void expand(const std::string& name, std::vector<std::string>& out) {
  const size_t open = name.find('{');
  const size_t close = name.find('}');
  if (open == std::string::npos || close == std::string::npos) {
    out.push_back(name);
    return;
  }
  for (const std::string_view one : request::split(
           std::string_view(name).substr(open + 1, close - open - 1), ',')) {
    expand(name.substr(0, open) + std::string(one) + name.substr(close + 1),
           out);
  }
}

// Leaf values by path. The flag is true for null and empty values, which may
// take the place of an object.
void leaves_of(const json& value, Path& path,
               std::set<std::pair<Path, bool>>& out) {
  if (!value.is_structured() || value.empty()) {
    out.emplace(path, value.is_null() || value.is_structured());
    return;
  }
  for (const auto& [key, inner] : value.items()) {
    if (value.is_object()) path.push_back(key);
    leaves_of(inner, path, out);
    if (value.is_object()) path.pop_back();
  }
}

bool is_any(const std::string& part) {
  return std::all_of(part.begin(), part.end(),
                     [](char c) { return c >= 'A' && c <= 'Z'; });
}

enum class Match : uint8_t { none, above, whole };

Match match(const Path& listed, const Path& path) {
  for (size_t i = 0; i < std::min(listed.size(), path.size()); ++i) {
    if (!is_any(listed[i]) && listed[i] != path[i]) return Match::none;
  }
  if (path.size() < listed.size()) return Match::above;
  return path.size() == listed.size() || is_any(listed.back()) ? Match::whole
                                                               : Match::none;
}

}  // namespace

std::vector<std::string> listed_paths(std::span<const cli::JsonField> listed) {
  std::vector<std::string> out;
  for (const cli::JsonField& field : listed) {
    for (const std::string& name : names_of(field.names)) expand(name, out);
  }
  return out;
}

JsonFieldUse use_of_fields(std::span<const cli::JsonField> listed,
                           const json& value) {
  const std::vector<std::string> names = listed_paths(listed);
  std::set<std::pair<Path, bool>> leaves;
  Path root;
  leaves_of(value, root, leaves);
  JsonFieldUse out;
  for (const auto& [path, may_stand] : leaves) {
    bool known = false;
    for (const std::string& name : names) {
      const auto parts = request::split(name, '.');
      const Match found = match(Path(parts.begin(), parts.end()), path);
      if (found == Match::whole) out.met.insert(name);
      known = known || found == Match::whole ||
              (found == Match::above && may_stand);
    }
    if (!known) out.unlisted.insert(fmt::format("{}", fmt::join(path, ".")));
  }
  return out;
}

}  // namespace tessera::testing
