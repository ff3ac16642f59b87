// cli/json_line.h: JSON as programs print it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera::cli {

// On one line; bytes that are not UTF-8, as in a file's name, are replaced.
std::string json_line(const nlohmann::json& json);

}  // namespace tessera::cli
