// cli/json_line.cc: JSON on one line.
#include "cli/json_line.h"

namespace tessera::cli {

std::string json_line(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tessera::cli
