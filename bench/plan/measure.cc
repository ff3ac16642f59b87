// bench/plan/measure.cc: plans twice: once for the memory, then for the time.
#include "bench/plan/measure.h"

#include <optional>
#include <utility>

#include "base/fail.h"
#include "bench/harness/memory_meter.h"
#include "cli/data/clustered_inputs.h"
#include "cli/plan/timing.h"
#include "cli/route/routed_batch.h"
#include "request/drawn_documents.h"
#include "request/pick_source.h"
#include "tessera/batch.h"

namespace tessera::bench {

using cli::best_plan_ns;
using cli::route_batch;
using request::lognormal_ids;
using request::names_router;
using request::PickSource;
using request::Resolved;

namespace {

constexpr const char* kPacked = "causal & window(4095, 0) & documents";

int64_t bytes_of(const Plan& plan) {
  auto list = [](const Worklist& w) {
    return w.row_start.size() * sizeof(uint32_t) +
           w.entries.size() * sizeof(Entry);
  };
  return static_cast<int64_t>(list(plan.forward) + list(plan.transposed) +
                              plan.legal_pairs.size() * sizeof(int64_t));
}

}  // namespace

std::vector<PlanCase> plan_cases() {
  return {
      {kPacked, 1 << 20, true, 2000, 1},
      {"causal", 1 << 17, false, 1000, 0},
      {"causal & documents", 1 << 15, true, 60, 1},
      {kPacked, 1 << 16, true, 0, 0},
      {kPacked, 1 << 17, true, 0, 0},
      {kPacked, 1 << 18, true, 0, 0},
      {kPacked, 1 << 19, true, 0, 0},
      {kPacked, 1 << 21, true, 0, 0},
      {kPacked, 1 << 22, true, 0, 0},
  };
}

Result<PlanCost> measure_plan(const PlanCase& c) {
  auto mask = parse_mask(c.mask);
  if (!mask) return mask.error();
  Resolved resolved;
  Request& request = resolved.request;
  request.masks = {std::move(*mask)};
  request.q_len = request.kv_len = c.tokens;
  if (c.documents) {
    resolved.facts.doc_ids = lognormal_ids(2048, 0, c.tokens);
  }
  PlanCost m;
  Facts facts = resolved.facts.view();
  std::optional<OwnedBatch> routed;
  if (names_router(request)) {
    PickSource source;
    source.drawn.emplace();
    auto made = route_batch({}, source, {}, {}, resolved);
    if (!made) return made.error();
    routed = std::move(*made);
    facts = routed->facts();
    m.route_ms = routed->route_ms();
    m.picks = cli::Clusters().describe();
  }
  {
    reset_heap_peak();
    const int64_t before = heap_bytes().now;
    auto batch = BorrowedBatch::make(request, facts);
    if (!batch) return batch.error();
    const Plan& plan = batch->plan();
    m.result_bytes = bytes_of(plan);
    m.extra_bytes = heap_bytes().peak - before - m.result_bytes;
    m.tiles = static_cast<int64_t>(plan.forward.entries.size());
    m.digest = plan_digest(plan);
  }
  auto ns = best_plan_ns(request, facts);
  if (!ns) return ns.error();
  m.ns = *ns;
  return m;
}

}  // namespace tessera::bench
