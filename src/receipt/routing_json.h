// receipt/routing_json.h: the router's settings and phases as JSON, for reports
// and receipts.
#pragma once

#include <nlohmann/json.hpp>

#include "tessera/route.h"

namespace tessera {

// All of them, so that a run can be made again.
nlohmann::ordered_json route_settings_json(const RouteSettings& settings);
nlohmann::ordered_json route_phases_json();

}  // namespace tessera
