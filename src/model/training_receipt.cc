// model/training_receipt.cc: fills the fields of a training run's receipt.
#include "model/training_receipt.h"

#include <fmt/format.h>

#include "base/digest.h"
#include "model/parameter_parts.h"
#include "receipt/lowering.h"
#include "run/receipt_parts.h"
#include "tessera/version.h"

namespace tessera::model {
namespace {

using Training = receipt::Receipt::Training;

Training::Exchange exchange_of(const TrainOptions& o) {
  Training::Exchange out;
  out.kind = o.shards ? to_string(o.shards->exchange) : "gather";
  out.balance = to_string(o.shards ? o.shards->balance : Balance::contiguous);
  if (!o.shards) return out;
  out.ceilings = to_string(o.shards->ceilings);
  if (o.shards->work != TileWork{}) out.work = to_string(o.shards->work);
  if (o.shards->evenness != Evenness{}) {
    out.evenness = to_string(o.shards->evenness);
  }
  return out;
}

void add_counters(const TrainCounters& counters, receipt::Receipt& r) {
  r.compiles = counters.compiles;
  r.cache_hits = {counters.memory_hits, counters.disk_hits};
  r.compile_ms = counters.compile_ms;
  r.warnings = counters.plugin_warnings;
  r.warnings.insert(r.warnings.end(), counters.warnings.begin(),
                    counters.warnings.end());
}

}  // namespace

Result<receipt::Receipt> training_receipt(const TrainingRun& run) {
  const TrainOptions& o = run.options;
  auto parameters = model_parameters(o.model, o.spec);
  if (!parameters) return parameters.error();
  auto work = model_work(o);
  if (!work) return work.error();
  receipt::Receipt r;
  r.kind = receipt::Kind::training;
  r.version = kVersion;
  r.operation = "train";
  if (!run.resumed) r.inputs.seed = o.seed;  // a resumed run draws nothing
  r.inputs.file = run.data;
  Training& t = r.training;
  t.spec = o.spec.name;
  for (size_t i = 0; i < kSlots; ++i) {
    t.slots[std::string(to_string(static_cast<Slot>(i)))] = o.spec.factories[i];
  }
  t.model = to_json(o.model);
  t.parameters = numbers_of(*parameters);
  for (const SlotWork& w : *work) {
    const SlotBytes& b = w.bytes;
    t.work.push_back({w.slot, w.flops, w.flops_back, b.inputs, b.parameters,
                      b.outputs, b.kept, b.read_back, b.written_back});
  }
  if (!o.mesh.axes.empty()) t.mesh = to_string(o.mesh);
  if (o.mesh.size("seq") > 1) t.exchange = exchange_of(o);
  for (const auto& [what, dtype] : precision_plan(o.precision)) {
    t.precision[what] = to_string(dtype);
  }
  t.rows = o.rows;
  t.tokens = o.tokens;
  t.tile = fmt::format("{}x{}", o.tile.q, o.tile.kv);
  t.recompute = o.recompute;
  t.rate = run.rates.peak.learning_rate;
  t.warmup = run.rates.warmup;
  t.max_norm = run.rates.peak.max_norm;
  t.weight_decay = o.optimizer.weight_decay;
  t.steps = run.rates.steps;
  if (run.resumed) {
    t.start = run.start;
    r.inputs.digests["start"] = digest_of(*run.resumed);
  }
  return r;
}

void add_trainer(const Trainer& trainer, const TrainOptions& o,
                 receipt::Receipt& r) {
  r.plugin = run::receipt_plugin(trainer.place(), o.xla.device);
  add_counters(trainer.counters(), r);
  r.training.program = trainer.program_key();
  r.training.specs = trainer.program_specs();
  r.training.first_step = trainer.steps() + 1;
}

void add_step(const StepReport& told, double seconds, receipt::Receipt& r) {
  r.plan_ms += told.plan_ms;
  r.transfer_ms += told.transfer_ms;
  r.run_ms += told.run_ms;
  Training& t = r.training;
  t.seconds += seconds;
  t.losses.push_back(told.loss);
  t.counted += told.tokens;
  t.tiles_run += told.tiles_run;
  t.tiles_planned += told.tiles_planned;
  t.attention_flops += told.attention_flops;
  if (!t.exchange) return;
  Training::Exchange& e = *t.exchange;
  e.sent += told.sent;
  e.all_gather += told.all_gather;
  const auto steps = static_cast<double>(t.losses.size());
  e.tiles_max_over_mean +=
      (told.tiles_max_over_mean - e.tiles_max_over_mean) / steps;
}

void add_end(const Trainer& trainer, receipt::Receipt& r) {
  add_counters(trainer.counters(), r);
  const auto& lowering = trainer.lowering();
  if (!lowering) return;
  r.lowering = receipt::lowering_of(
      *lowering, r.training.tiles_run * lowering->tile.q * lowering->tile.kv);
}

}  // namespace tessera::model
