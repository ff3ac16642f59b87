// cli/train/receipt.cc: settings to a receipt's fields, and back to flags.
#include "cli/train/receipt.h"

#include <fmt/format.h>

#include <utility>

#include "base/digest.h"
#include "cli/train/report.h"
#include "model/precision.h"
#include "receipt/parts.h"
#include "run/receipt_parts.h"
#include "tessera/version.h"

namespace tessera::cli {

namespace {

receipt::Receipt::Training::Exchange exchange_of(const TrainOptions& o) {
  receipt::Receipt::Training::Exchange out;
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

}  // namespace

Result<receipt::Receipt> training_receipt(const TrainSettings& s,
                                          const TrainFlags& f) {
  const TrainOptions& o = s.options;
  auto parameters = model_parameters(o.model, o.spec);
  if (!parameters) return parameters.error();
  auto work = model_work(o);
  if (!work) return work.error();
  receipt::Receipt r;
  r.kind = receipt::Kind::training;
  r.version = kVersion;
  r.operation = "train";
  r.inputs.seed = o.seed;
  r.inputs.file = f.data;
  receipt::Receipt::Training& t = r.training;
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
  t.rate = s.peak.learning_rate;
  t.warmup = s.warmup;
  t.max_norm = s.peak.max_norm;
  t.weight_decay = o.optimizer.weight_decay;
  t.steps = s.steps;
  if (s.resumed) {
    t.start = *f.resume;
    r.inputs.digests["start"] = digest_of(*s.resumed);
  }
  return r;
}

void add_counters(const TrainCounters& counters, receipt::Receipt& r) {
  r.compiles = counters.compiles;
  r.cache_hits = {counters.memory_hits, counters.disk_hits};
  r.compile_ms = counters.compile_ms;
  r.warnings = counters.plugin_warnings;
  r.warnings.insert(r.warnings.end(), counters.warnings.begin(),
                    counters.warnings.end());
}

void add_trainer(const Trainer& trainer, const TrainSettings& s,
                 receipt::Receipt& r) {
  r.plugin = run::receipt_plugin(trainer.place(), s.options.xla.device);
  add_counters(trainer.counters(), r);
  r.training.program = trainer.program_key();
  r.training.specs = trainer.program_specs();
  r.training.first_step = trainer.steps() + 1;
}

nlohmann::json model_json(const receipt::Receipt& r) {
  const nlohmann::json all = receipt::fields_json(r);
  nlohmann::json out;
  for (const char* name : {"tessera", "spec", "slots", "model", "parameters",
                           "work", "mesh", "precision", "rows", "tokens"}) {
    out[name] = all.at(name);
  }
  out["exchange"] = all.at("exchange");
  // Of steps that ran.
  for (const char* name : {"sent", "all_gather", "tiles_max_over_mean"}) {
    if (out["exchange"].is_object()) out["exchange"].erase(name);
  }
  return out;
}

TrainFlags flags_of_training(const receipt::Receipt& r) {
  const receipt::Receipt::Training& t = r.training;
  TrainFlags f;
  f.data = r.inputs.file;
  f.spec = t.spec;
  f.steps = fmt::to_string(t.steps);
  f.rows = fmt::to_string(t.rows);
  if (!t.mesh.empty()) f.mesh = t.mesh;
  if (t.exchange) {
    f.exchange = t.exchange->kind;
    if (t.exchange->kind != "gather") {
      f.balance = t.exchange->balance;
      f.ceilings = t.exchange->ceilings;
      f.work = t.exchange->work;
      f.evenness = t.exchange->evenness;
    }
  }
  f.seed = fmt::to_string(r.inputs.seed);
  const auto products = t.precision.find("products");
  const bool rounded =
      products != t.precision.end() && products->second == "BF16";
  f.dtype = rounded ? "bf16" : "f32";
  f.tile = t.tile;
  if (r.lowering) f.lowering_reason = r.lowering->reason;
  f.rate = fmt::to_string(t.rate);
  f.warmup = fmt::to_string(t.warmup);
  f.max_norm = fmt::to_string(t.max_norm);
  f.weight_decay = fmt::to_string(t.weight_decay);
  f.recompute = t.recompute;
  if (!t.start.empty()) f.resume = t.start;
  f.json = true;  // nothing on the way
  return f;
}

}  // namespace tessera::cli
