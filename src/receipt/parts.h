// receipt/parts.h: what receipts and reports hold, as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "receipt/receipt.h"

namespace tessera::receipt {
namespace parts {

// "nan", "inf" and "-inf" are words, which no reader takes for numbers.
nlohmann::ordered_json number(double value);
// The printer refuses text that is not UTF-8, as a file's name may be.
nlohmann::ordered_json text(const std::string& value);
nlohmann::ordered_json texts(const std::vector<std::string>& values);

}  // namespace parts

// Every field, as the table has them. A receipt is written as it is, sealed or
// not.
nlohmann::ordered_json fields_json(const Receipt& receipt);
// Those that a second run tells too.
nlohmann::ordered_json repeatable_json(const Receipt& receipt);
nlohmann::ordered_json fields_json(const GateRow& row);
nlohmann::ordered_json fields_json(const RouteSettings& settings);
// The phases of a routed run: where a gradient flows.
nlohmann::ordered_json route_phases_json();

}  // namespace tessera::receipt
