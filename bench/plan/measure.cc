// bench/plan/measure.cc: plans once to measure memory, then again for the time.
#include "bench/plan/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "base/timed.h"
#include "base/turns.h"
#include "bench/harness/memory_meter.h"
#include "cli/route/drawn_inputs.h"
#include "cli/route/routed_batch.h"
#include "plan/make_plan.h"
#include "request/documents.h"
#include "request/pick_source.h"
#include "tessera/batch.h"

namespace tessera::bench {

using cli::route_batch;
using request::names_router;
using request::PickSource;
using request::read_documents;
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

// Times planning from raw ids to both lists, with validation. It runs until the
// minimum has settled or the time limit is reached.
Result<int64_t> best_ns(const Request& request, const Facts& facts) {
  Plan plan;
  const Rounds rounds{.least = 3, .most = 100, .seconds = 0.2, .limit = 1};
  auto ms = repeat<double>(rounds, [&]() -> Result<double> {
    const auto start = std::chrono::steady_clock::now();
    auto sweep = mask::start_sweep(request, facts);
    if (!sweep) return sweep.error();
    if (auto e = plan::plan_sweep(*sweep, plan); !e) return e.error();
    return ms_since(start);
  });
  if (!ms) return ms.error();
  return std::llround(std::ranges::min(*ms) * 1e6);
}

}  // namespace

std::vector<PlanCase> plan_cases() {
  return {
      {kPacked, 1 << 20, kPlanDocs, 2000, 1},
      {"causal", 1 << 17, "", 1000, 0},
      {"causal & documents", 1 << 15, kPlanDocs, 60, 1},
      {kPacked, 1 << 16, kPlanDocs, 0, 0},
      {kPacked, 1 << 17, kPlanDocs, 0, 0},
      {kPacked, 1 << 18, kPlanDocs, 0, 0},
      {kPacked, 1 << 19, kPlanDocs, 0, 0},
      {kPacked, 1 << 21, kPlanDocs, 0, 0},
      {kPacked, 1 << 22, kPlanDocs, 0, 0},
  };
}

Result<PlanCost> measure_plan(const PlanCase& c) {
  auto mask = parse_mask(c.mask);
  if (!mask) return mask.error();
  Resolved resolved;
  Request& request = resolved.request;
  request.masks = {std::move(*mask)};
  request.q_len = request.kv_len = c.tokens;
  request.tile = c.tile;
  if (!c.docs.empty()) {
    auto ids = read_documents(c.docs, "--docs", 1, c.tokens);
    if (!ids) return ids.error();
    resolved.facts.doc_ids = std::move(*ids);
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
    m.picks =
        cli::clusters_of(*source.drawn, routed->routing()->settings).describe();
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
  auto ns = best_ns(request, facts);
  if (!ns) return ns.error();
  m.ns = *ns;
  return m;
}

}  // namespace tessera::bench
