// cli/json_line.h: JSON on one line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera::cli {

// Bytes that are not UTF-8, for example of a file name, are replaced.
std::string json_line(const nlohmann::json& json);

}  // namespace tessera::cli
