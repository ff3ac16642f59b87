// tests/json_fields.h: compares JSON to the fields that a command's help lists.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace tessera::testing {

// Expands the listed paths: `a.{b,c}[].d` becomes a.b.d and a.c.d.
std::vector<std::string> listed_paths(std::span<const cli::JsonField> listed);

struct JsonFieldUse {
  std::set<std::string> unlisted;  // fields of the JSON that are not listed
  std::set<std::string> met;       // listed fields that the JSON has
};
JsonFieldUse use_of_fields(std::span<const cli::JsonField> listed,
                           const nlohmann::json& json);

}  // namespace tessera::testing
