// cli/fit/report.h: a budget, and the compiler's own numbers beside it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "cli/command.h"
#include "pjrt/compile.h"
#include "tessera/fit.h"

namespace tessera::cli {

struct FitReport {
  LaneId lane = LaneId::xla;
  XlaMethod method = XlaMethod::worklist;  // of that lane
  Tile tile;
  Budget budget;
  std::vector<Remedy> remedies = {};  // where it does not fit
  // By program, with --compile.
  std::optional<pjrt::MemoryStats> forward = {}, backward = {}, sinks = {};
};

nlohmann::json fit_json(const FitReport& report);
std::span<const JsonField> fit_json_fields();
std::string fit_text(const FitReport& report);
// Says on stderr what does not fit; the exit code.
int fit_code(const FitReport& report);

}  // namespace tessera::cli
