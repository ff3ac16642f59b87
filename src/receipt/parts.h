// receipt/parts.h: what receipts of every kind hold, as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "receipt/receipt.h"

namespace tessera::parts {

// "nan", "inf" and "-inf" are words, which no reader takes for numbers.
nlohmann::ordered_json number(double value);

// The printer refuses text that is not UTF-8, as a file's name may be.
nlohmann::ordered_json text(const std::string& value);
nlohmann::ordered_json texts(const std::vector<std::string>& values);

// Null for an empty name.
nlohmann::ordered_json file_name(const std::string& name);

nlohmann::ordered_json plugin_json(const std::optional<Receipt::Plugin>& p);
nlohmann::ordered_json check_json(const Receipt::Check& c);

// Adds the digest of all fields before it.
void add_digest(nlohmann::ordered_json& receipt);

}  // namespace tessera::parts
