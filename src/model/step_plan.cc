// model/step_plan.cc: checks options, then makes requests and places.
#include "model/step_plan.h"

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>

#include "base/fail.h"
#include "model/mesh.h"

namespace tessera::model {
namespace {

// Plans a step in which each device has a part of the rows, tokens in order.
Result<void> plan_parts(const TrainOptions& o, const std::string& target,
                        PlannedStep& out) {
  const int64_t batch = o.rows / o.mesh.size(kDataAxis);
  const int64_t tokens = o.tokens / o.mesh.size(kSeqAxis);
  auto requests = layer_requests(o.model, batch, tokens, o.tokens, o.tile);
  if (!requests) return requests.error();
  out.requests = std::move(*requests);
  // Only which facts are present matters here, not their values.
  const std::vector<int32_t> ids(static_cast<size_t>(batch * o.tokens));
  const std::vector<int32_t> counts(static_cast<size_t>(batch));
  Facts all;
  all.doc_ids = ids;
  all.valid_token_counts = counts;
  QueryFacts kept;
  const Facts present = facts_of(all, {0, 1, 0, o.mesh.size(kSeqAxis)}, kept);
  auto places =
      attention_places(own_model(o.model, o.mesh), o.spec, o.precision.products,
                       out.requests, present, target, o.xla.lowering_reason);
  if (!places) return places.error();
  out.shape.batch = batch;
  out.shape.tokens = tokens;
  out.shape.places = std::move(*places);
  share_rows(out.shape);
  return {};
}

Result<void> check_options(const TrainOptions& o) {
  if (auto e = check_model(o.model); !e) return e;
  if (o.precision.products != Dtype::f32 &&
      o.precision.products != Dtype::bf16) {
    return invalid("train", "products must be F32 or BF16, found {}",
                   to_string(o.precision.products));
  }
  if (o.rows < 1 || o.rows > kMaxBatch || o.tokens < 1 ||
      o.tokens > kMaxRowTokens || o.rows > (int64_t{1} << 24) / o.tokens) {
    return invalid("train",
                   "rows of a step must have 1 to {} tokens together, found {} "
                   "rows of {}",
                   int64_t{1} << 24, o.rows, o.tokens);
  }
  const OptimizerSettings& a = o.optimizer;
  const bool fits = a.beta1 >= 0 && a.beta1 < 1 && a.beta2 >= 0 &&
                    a.beta2 < 1 && a.eps > 0 && a.weight_decay >= 0;
  if (!fits || !std::isfinite(static_cast<float>(a.eps + a.weight_decay))) {
    return invalid("train",
                   "betas must be 0 to below 1, eps above 0 and weight decay "
                   "at least 0, found {}, {}, {} and {}",
                   a.beta1, a.beta2, a.eps, a.weight_decay);
  }
  if (auto e = check_mesh(o); !e) return e;
  return check_spread(o);
}

Result<PlannedRows> spread_of(const TrainOptions& o) {
  auto requests = layer_requests(o.model, o.rows, o.tokens, o.tokens, o.tile);
  if (!requests) return requests.error();
  auto spread =
      make_spread(o.mesh, *o.shards,
                  attention_call(o.model, o.precision.products), *requests);
  if (!spread) return spread.error();
  return PlannedRows{std::move(*requests), std::move(*spread)};
}

// Plans a step in which each device has some tokens of all its rows as one row.
Result<void> plan_spread(const TrainOptions& o, const std::string& target,
                         PlannedStep& out) {
  auto rows = spread_of(o);
  if (!rows) return rows.error();
  auto places = spread_places(rows->spread, rows->requests, o.spec, target,
                              o.xla.lowering_reason);
  if (!places) return places.error();
  out.requests = std::move(rows->requests);
  out.spread = std::move(rows->spread);
  out.shape.batch = 1;
  out.shape.tokens = out.spread->shards.ceilings.front().rows * o.tile.q;
  out.shape.places = std::move(*places);
  return {};
}

}  // namespace

Result<PlannedRows> plan_rows(const TrainOptions& o) {
  if (auto e = check_options(o); !e) return e.error();
  if (!o.shards) {
    return invalid("train",
                   "ceilings are of an exchange of rounds or ragged, found "
                   "gather");
  }
  return spread_of(o);
}

std::string plugin_of(const TrainOptions& o) {
  return o.xla.plugin.empty() ? default_plugin(o.spec) : o.xla.plugin;
}

bool is_xla_cpu_pjrt(const std::string& plugin) {
  return std::filesystem::path(plugin).stem() == "xla_cpu_pjrt";
}

Result<PlannedStep> plan_step(const TrainOptions& o,
                              const std::string& target) {
  if (auto e = check_options(o); !e) return e.error();
  PlannedStep out;
  StepShape& s = out.shape;
  s.model = o.model;
  s.spec = o.spec;
  s.mesh = o.mesh;
  s.products =
      o.precision.products == Dtype::bf16 ? Element::bf16 : Element::f32;
  s.recompute = o.recompute;
  s.drops_barriers = !has_kernels(o.spec) && o.xla.plugin != kTpuPlugin;
  s.gives_state = !is_xla_cpu_pjrt(plugin_of(o));
  s.optimizer = o.optimizer;
  auto ok = o.shards ? plan_spread(o, target, out) : plan_parts(o, target, out);
  if (!ok) return ok.error();
  return out;
}

Result<std::optional<Lowering>> lower_step(const TrainOptions& o,
                                           const std::optional<Chip>& chip) {
  const std::string& attention = o.spec.of(Slot::attention);
  if (!chip || (attention != "mosaic" && attention != "worklist")) {
    if (!o.xla.lowering_reason) return std::optional<Lowering>();
    return invalid("train",
                   "a lowering reason goes with tiles of scores on a TPU, "
                   "found one for attention by {}{}",
                   attention, chip ? "" : " on another device");
  }
  auto lowering =
      lower_tile("train", o.tile, {0, 0}, *chip, o.xla.lowering_reason);
  if (!lowering) return lowering.error();
  return std::optional(std::move(*lowering));
}

}  // namespace tessera::model
