// receipt/parts.h: what receipts and reports hold, as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "receipt/receipt.h"

namespace tessera::receipt {
namespace parts {

// A number that is not finite becomes "nan", "inf" or "-inf"; readers refuse
// it.
nlohmann::ordered_json number(double value);
// Escapes text that is not UTF-8, which the JSON printer would refuse.
nlohmann::ordered_json text(const std::string& value);
nlohmann::ordered_json texts(const std::vector<std::string>& values);

}  // namespace parts

// Every field of the table. The receipt need not be sealed.
nlohmann::ordered_json fields_json(const Receipt& receipt);
// The fields that a second run must repeat.
nlohmann::ordered_json repeatable_json(const Receipt& receipt);
nlohmann::ordered_json fields_json(const GateRow& row);
nlohmann::ordered_json fields_json(const RouteSettings& settings);
// The phases of a routed run: where a gradient flows.
nlohmann::ordered_json route_phases_json();

}  // namespace tessera::receipt
