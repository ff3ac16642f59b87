// cli/plan/report.cc: computes the report of `tessera plan`.
#include "cli/plan/report.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "receipt/routing.h"
#include "tessera/layouts.h"

namespace tessera::cli {

std::string took_once(int64_t ns) {
  return fmt::format("{:.1f} us, once, memory cold",
                     static_cast<double>(ns) / 1e3);
}

Result<PlanReport> make_report(request::Planned planned) {
  PlanReport r(std::move(planned));
  const Batch& batch = r.planned.batch;
  r.plan_ns = std::llround(batch.plan_ms() * 1e6);
  const Request& request = batch.request();
  auto statistics = make_statistics(batch);
  if (!statistics) return statistics.error();
  r.statistics = std::move(*statistics);
  auto contract = make_contract(batch);
  if (!contract) return contract.error();
  r.contract = std::move(*contract);
  for (size_t i = 0; i < request.masks.size(); ++i) {
    const std::string canonical = to_string(request.masks[i]);
    if (canonical != r.planned.written[i]) {
      r.contract.folded.insert(r.contract.folded.begin(),
                               fmt::format("mask {} is written {}",
                                           r.planned.written[i], canonical));
    }
  }
  r.warnings = make_warnings(batch);
  r.digest = plan_digest(r.plan());
  r.picks = receipt::routing_of(batch);
  r.steps = step_count(r.plan().forward);
  r.steps_transposed = step_count(r.plan().transposed);
  // One word for each step and for each bound of the ranges.
  r.metadata_bytes = 4 * (r.steps + r.plan().forward.lists + 1);
  if (r.planned.target) {
    for (const bool transposed : {false, true}) {
      auto steps = pack_steps(batch, transposed);
      if (!steps) return steps.error();
      auto launches = split_launches(*steps, *r.planned.target);
      if (!launches) return launches.error();
      (transposed ? r.launches_transposed : r.launches) =
          static_cast<int64_t>(launches->size());
    }
  }
  return r;
}

}  // namespace tessera::cli
