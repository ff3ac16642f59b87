// cli/lowering.h: the flag --lowering-reason, and a Lowering as text and JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tessera/machine.h"
#include "tessera/result.h"

namespace tessera::cli {

inline constexpr const char* kLoweringReasonHelp =
    "Why a tile or a logical block below the granule of a TPU's matrix unit is "
    "lowered to it: kept in contract and receipt [without a reason it is "
    "refused]";

// Checks the flag before any work.
Result<void> check_reason_flag(const std::optional<std::string>& reason);

nlohmann::json lowering_json(const Lowering& lowering);
std::string lowering_text(const Lowering& lowering);

}  // namespace tessera::cli
