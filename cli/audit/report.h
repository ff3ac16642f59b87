// cli/audit/report.h: what `tessera audit` prints.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "cli/command.h"
#include "tessera/shard.h"

namespace tessera::cli {

nlohmann::json audit_json(const Audit& audit);
std::span<const JsonField> audit_json_fields();
std::string audit_text(const Audit& audit);

}  // namespace tessera::cli
