// cli/route/stages.cc: routes, computes the recall and plans, and records
// times.
#include "cli/route/stages.h"

#include <utility>

#include "receipt/machine.h"
#include "route/stage_times.h"

namespace tessera::cli {

Result<void> route_timed(RouteJob& job) {
  RouteOptions options = job.options;
  options.until = job.report.until;
  options.memory = receipt::available_memory();
  options.after = routing::adds_to(job.report.ms);
  auto routed = route(job.resolved.request, job.resolved.facts.view(),
                      job.inputs(), job.settings, options);
  if (!routed) return routed.error();
  job.report.result = std::move(*routed);
  return {};
}

Result<void> find_recall(RouteJob& job) {
  RouteSettings exhaustive = job.settings;
  exhaustive.hierarchical = false;
  RouteOptions options = job.options;
  options.until = RouteStage::legality;
  options.memory = receipt::available_memory();
  RouteInputs in = job.inputs();
  in.metas.reset();
  auto all = route(job.resolved.request, job.resolved.facts.view(), in,
                   exhaustive, options);
  if (!all) return all.error();
  auto recall = route_recall(job.report.result, *all);
  if (!recall) return recall.error();
  job.report.recall = *recall;
  return {};
}

Result<BorrowedBatch> plan_timed(RouteJob& job) {
  const Request& request = job.resolved.request;
  const Facts facts = job.report.result.facts(job.resolved.facts.view());
  auto batch = BorrowedBatch::make(request, facts);
  if (!batch) return batch;
  job.report.plan_ms = batch->plan_ms();
  auto statistics = make_statistics(*batch);
  if (!statistics) return statistics.error();
  job.report.plan = std::move(*statistics);
  Request causal_request = request;
  causal_request.masks = {*make_mask(causal())};
  Facts others = facts;
  others.picks.reset();
  auto dense = BorrowedBatch::make(std::move(causal_request), others);
  if (!dense) return dense.error();
  job.report.causal_tiles =
      static_cast<int64_t>(dense->plan().forward.entries.size()) *
      batch->plan().heads;
  return batch;
}

}  // namespace tessera::cli
