// cli/audit/report.h: what `tessera audit` prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tessera/shard.h"

namespace tessera::cli {

nlohmann::json audit_json(const Audit& audit);
std::string audit_text(const Audit& audit);

}  // namespace tessera::cli
