// cli/plan/report.h: a plan in words and as JSON.
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
  std::vector<std::string> warnings;  // of the plan and of facts in vain
  int64_t plan_ns = 0;                // that this one planning took
  Statistics statistics;
  PlanContract contract;
  std::string digest;
  std::optional<receipt::Receipt::Routing> picks;  // where a mask names them
  // Packed steps, and the bytes of the forward ones and their ranges.
  int64_t steps = 0;
  int64_t steps_transposed = 0;
  int64_t metadata_bytes = 0;
  // Of the target, where one was named.
  std::optional<int64_t> launches;
  std::optional<int64_t> launches_transposed;
};

Result<PlanReport> make_report(request::Planned planned);

nlohmann::json report_json(const PlanReport& report, bool lists);
std::span<const JsonField> report_json_fields();
std::string report_text(const PlanReport& report);

std::string took_once(int64_t ns);  // what a single run took

}  // namespace tessera::cli
