// cli/train/receipt.cc: a receipt's model as JSON, and its fields as flags.
#include "cli/train/receipt.h"

#include <fmt/format.h>

#include "receipt/parts.h"

namespace tessera::cli {

nlohmann::json model_json(const receipt::Receipt& r) {
  const nlohmann::json all = receipt::fields_json(r);
  nlohmann::json out;
  for (const char* name : {"tessera", "spec", "slots", "model", "parameters",
                           "work", "mesh", "precision", "rows", "tokens"}) {
    out[name] = all.at(name);
  }
  out["exchange"] = all.at("exchange");
  // These fields are about steps that ran.
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
  if (t.start.empty()) {
    f.seed = fmt::to_string(r.inputs.seed);
  } else {
    f.resume = t.start;
  }
  f.json = true;  // no progress output
  return f;
}

}  // namespace tessera::cli
