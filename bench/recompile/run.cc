// bench/recompile/run.cc: the batches, each on both lanes, judged and counted.
#include "bench/recompile/run.h"

#include <fmt/format.h>

#include <utility>

#include "base/fail.h"
#include "base/timed.h"
#include "cli/data/attention_data.h"
#include "cli/data/random_inputs.h"
#include "cli/progress.h"
#include "cli/run/check.h"
#include "lanes/cpu/cpu.h"

namespace tessera::bench {

using cli::AttentionData;
using cli::check_run;
using cli::fill_inputs;
using cli::Progress;

namespace {

void add(const XlaRun& run, RecompileTotals& t) {
  t.contracts.insert(run.contract.key);
  t.compiles += run.compiles;
  t.disk_hits += run.disk_hits;
  t.memory_hits += run.memory_hits;
  t.compile_ms += run.compile_ms;
  t.transfer_ms += run.transfer_ms;
  t.xla_ms += run.run_ms;
  t.warnings.insert(run.warnings.begin(), run.warnings.end());
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

// Both directions of what a lane wrote.
Result<void> judge(const char* lane, bool flushes, int64_t index,
                   const Batch& batch, AttentionData& data,
                   RecompileTotals& t) {
  auto check = check_run(batch, data, static_cast<uint64_t>(index), flushes);
  if (!check) return check.error();
  t.all_rows = t.all_rows && check->kind == "full";
  t.rows += check->rows;
  if (check->max_bound_ratio <= t.max_ratio && !t.worst.empty()) return {};
  t.max_ratio = check->max_bound_ratio;
  t.worst = fmt::format("{} lane, batch {}: {}", lane, index, check->worst);
  return {};
}

Result<void> run_xla(const XlaLane& lane, const Batch& batch,
                     AttentionData& data, RecompileTotals& t) {
  const int64_t before = t.compiles;
  auto forward = lane.forward(batch, data.shape, data.forward_tensors());
  if (!forward) return forward.error();
  add(*forward, t);
  auto backward = lane.backward(batch, data.shape, data.backward_tensors());
  if (!backward) return backward.error();
  add(*backward, t);
  t.compiles_in_loop += t.compiles - before;
  return {};
}

Result<void> run_cpu(const Batch& batch, AttentionData& data,
                     RecompileTotals& t) {
  return timed(t.cpu_ms, [&]() -> Result<void> {
    auto work = cpu_prepare(batch);
    if (!work) return work.error();
    auto forward = cpu_forward(*work, data.shape, data.forward_tensors());
    if (!forward) return forward.error();
    auto backward = cpu_backward(*work, data.shape, data.backward_tensors());
    if (!backward) return backward.error();
    return {};
  });
}

}  // namespace

Result<void> warm_up(const XlaLane& lane, const RecompileSettings& s,
                     const std::vector<RaggedBatch>& batches,
                     RecompileTotals& t) {
  Progress progress("warming up");
  std::set<std::string> seen;
  for (const RaggedBatch& b : batches) {
    auto contract = make_ceiling_contract(b.request, b.facts());
    if (!contract) return contract.error();
    if (!seen.insert(contract->key).second) continue;
    for (const bool backward : {false, true}) {
      AttentionCall call;
      call.shape = s.shape;
      call.dtype = s.dtype;
      call.backward = backward;
      auto ran = lane.warm(b.request, b.facts(), call);
      if (!ran) return ran.error();
      add(*ran, t);
    }
  }
  return {};
}

Result<void> run_batches(const XlaLane& lane, const RecompileSettings& s,
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
      auto ran =
          xla ? run_xla(lane, *batch, data, t) : run_cpu(*batch, data, t);
      if (!ran) return ran;
      auto judged = judge(xla ? "xla" : "cpu", xla, index, *batch, data, t);
      if (!judged) return judged;
    }
  }
  return {};
}

}  // namespace tessera::bench
