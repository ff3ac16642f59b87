// bench/recompile/run.cc: runs each batch on both lanes, checks and counts it.
#include "bench/recompile/run.h"

#include <fmt/format.h>

#include <utility>

#include "base/fail.h"
#include "base/timed.h"
#include "cli/progress.h"
#include "request/attention_data.h"
#include "request/random_inputs.h"
#include "run/judge_run.h"
#include "run/passes.h"
#include "run/session_state.h"

namespace tessera::bench {

using cli::Progress;
using request::AttentionData;
using request::fill_inputs;

namespace {

void add(const Counters& did, RecompileTotals& t) {
  t.add_compiles(did);
  t.compile_ms += did.compile_ms;
  t.transfer_ms += did.transfer_ms;
  t.xla_ms += did.forward_ms + did.backward_ms;
}

void fill(AttentionData& data, const RaggedBatch& b, const RecompileSettings& s,
          uint64_t seed) {
  data.batch = s.sizes.rows;
  data.q_len = data.kv_len = b.length();
  data.shape = s.shape;
  data.dtype = s.dtype;
  data.backward = true;
  data.allocate();
  fill_inputs(data, seed);
}

// Checks the results of a lane, forward and backward.
Result<void> judge(const char* lane, bool flushes, int64_t index,
                   const Batch& batch, AttentionData& data,
                   RecompileTotals& t) {
  Progress progress("checking");
  auto check =
      run::judge_run(data.over(batch), {.seed = static_cast<uint64_t>(index),
                                        .flushes = flushes,
                                        .progress = progress.callback()});
  if (!check) return check.error();
  t.all_rows = t.all_rows && check->kind == "full";
  t.rows += check->rows;
  if (check->max_bound_ratio <= t.max_ratio && !t.worst.empty()) return {};
  t.max_ratio = check->max_bound_ratio;
  t.worst = fmt::format("{} lane, batch {}: {}", lane, index, check->worst);
  return {};
}

Result<void> run_xla(const Session& session, const Batch& batch,
                     AttentionData& data, RecompileTotals& t) {
  auto ran = run::run_passes(session, data.over(batch));
  if (!ran) return ran.error();
  const Counters counters = ran->ready.counters();
  add(counters, t);
  t.compiles_in_loop += counters.compiles;
  const lanes::WorkFacts& work = ran->ready.state().work->facts();
  for (const auto& [direction, key] : work.kernels) t.contracts.insert(key);
  t.warnings.insert(work.warnings.begin(), work.warnings.end());
  return {};
}

Result<void> run_cpu(const Session& session, const Batch& batch,
                     AttentionData& data, RecompileTotals& t) {
  auto ran = timed(t.cpu_ms,
                   [&] { return run::run_passes(session, data.over(batch)); });
  if (!ran) return ran.error();
  return {};
}

}  // namespace

Result<RecompileLanes> open_lanes(const RecompileSettings& s) {
  SessionOptions options;
  options.lane = LaneId::xla;
  options.xla = s.xla;
  auto xla = Session::open(options);
  if (!xla) return xla.error();
  options.lane = LaneId::cpu;
  auto cpu = Session::open(options);
  if (!cpu) return cpu.error();
  return RecompileLanes{std::move(*xla), std::move(*cpu)};
}

Result<void> warm_up(const Session& xla, const RecompileSettings& s,
                     const std::vector<RaggedBatch>& batches,
                     RecompileTotals& t) {
  AttentionCall call;
  call.shape = s.shape;
  call.dtype = s.dtype;
  call.backward = true;
  WarmList list;
  for (const RaggedBatch& b : batches) {
    auto added = add_ceilings(list, xla, b.request, b.facts(), call);
    if (!added) return added.error();
  }
  Progress progress("warming up");
  WarmOptions options;
  options.threads = 1;  // compile_ms is the time of a compile by itself
  options.progress = progress.counter();
  auto warmed = xla.warm(list, options);
  if (!warmed) return warmed.error();
  t.add_compiles(*warmed);
  t.compile_ms += warmed->compile_ms;
  return {};
}

Result<void> run_batches(const RecompileLanes& lanes,
                         const RecompileSettings& s,
                         const std::vector<RaggedBatch>& batches,
                         RecompileTotals& t) {
  Progress progress("batches");
  AttentionData data;
  for (const RaggedBatch& b : batches) {
    const int64_t index = t.batches++;
    progress.show(static_cast<double>(index) / static_cast<double>(s.batches));
    auto batch = BorrowedBatch::make(b.request, b.facts());
    if (!batch) return batch.error();
    t.plan_ms += batch->plan_ms();
    t.shapes.insert(make_ceiling_contract(b.request, b.facts()).value().key);
    for (const int64_t n : batch->plan().legal_pairs) t.legal_pairs += n;
    for (const bool xla : {true, false}) {
      fill(data, b, s, static_cast<uint64_t>(index));
      auto ran = xla ? run_xla(lanes.xla, *batch, data, t)
                     : run_cpu(lanes.cpu, *batch, data, t);
      if (!ran) return ran;
      auto judged = judge(xla ? "xla" : "cpu", xla, index, *batch, data, t);
      if (!judged) return judged;
    }
  }
  return {};
}

}  // namespace tessera::bench
