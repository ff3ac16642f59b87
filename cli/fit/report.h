// cli/fit/report.h: a budget, with the compiler's own numbers to compare.
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
  XlaMethod method = XlaMethod::worklist;  // of lane xla
  Tile tile;
  Budget budget;
  std::vector<Remedy> remedies = {};  // if the call does not fit
  // The compiler's numbers for each program, with --compile.
  std::optional<pjrt::MemoryStats> forward = {}, backward = {}, sinks = {};
};

nlohmann::json fit_json(const FitReport& report);
std::span<const JsonField> fit_json_fields();
std::string fit_text(const FitReport& report);
// The exit code. Prints to stderr what does not fit.
int fit_code(const FitReport& report);

}  // namespace tessera::cli
