// tests/json_fields.h: JSON held to the fields that a command's help lists.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace tessera::testing {

// The listed paths one by one: `a.{b,c}[].d` is a.b.d and a.c.d.
std::vector<std::string> listed_paths(std::span<const cli::JsonField> listed);

struct JsonFieldUse {
  std::set<std::string> unlisted;  // what the JSON has and the list has not
  std::set<std::string> met;       // what of the list the JSON has
};
JsonFieldUse use_of_fields(std::span<const cli::JsonField> listed,
                           const nlohmann::json& json);

}  // namespace tessera::testing
