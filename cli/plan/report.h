// cli/plan/report.h: a plan as text and JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "receipt/receipt.h"
#include "request/load.h"
#include "tessera/batch.h"

namespace tessera::cli {

struct PlanReport {
  explicit PlanReport(request::Planned of) : planned(std::move(of)) {}
  const Request& request() const { return planned.batch.request(); }
  const Plan& plan() const { return planned.batch.plan(); }

  request::Planned planned;
  std::vector<std::string> warnings;  // as make_warnings() gives them
  int64_t plan_ns = 0;                // the time of this planning
  Statistics statistics;
  PlanContract contract;
  std::string digest;
  std::optional<receipt::Receipt::Routing> picks;  // if a mask names picks
  // Counts of packed steps; metadata_bytes is of forward steps and ranges.
  int64_t steps = 0;
  int64_t steps_transposed = 0;
  int64_t metadata_bytes = 0;
  // Launches on the target of --target, if given.
  std::optional<int64_t> launches;
  std::optional<int64_t> launches_transposed;
};

Result<PlanReport> make_report(request::Planned planned);

nlohmann::json report_json(const PlanReport& report, bool lists);
std::span<const JsonField> report_json_fields();
std::string report_text(const PlanReport& report);

std::string took_once(int64_t ns);  // text for the time of a single run

}  // namespace tessera::cli
