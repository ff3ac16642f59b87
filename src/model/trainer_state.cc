// model/trainer_state.cc: compiles programs, and sends state and batches.
#include "model/trainer_state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/digest.h"
#include "base/fail.h"
#include "base/timed.h"
#include "base/trace.h"
#include "model/layer.h"
#include "model/optimizer.h"
#include "model/plans.h"
#include "model/program.h"
#include "model/routes.h"

namespace tessera {

Result<Trainer::State::Program> Trainer::State::compile(std::string text,
                                                        size_t results) {
  const std::string of = digest_of(text);
  double ms = 0;
  auto found = timed(ms, [&] {
    return programs.get(*on.client, on.devices,
                        {of, "{\"program\":\"" + of + "\"}"},
                        [&] { return Result<std::string>(std::move(text)); });
  });
  if (!found) return found.error();
  counters.compile_ms += ms;
  counters.add_compiles(pjrt::counts_of(found->found));
  counters.warnings.insert(counters.warnings.end(), found->warnings.begin(),
                           found->warnings.end());
  if (found->program->outputs().size() != results) {
    return invalid("train", "a program must give {} results, found {}", results,
                   found->program->outputs().size());
  }
  return std::move(found->program);
}

Result<void> Trainer::State::put(const model::TrainState& state) {
  std::vector<std::vector<pjrt::Buffer>> sent(devices());
  for (size_t d = 0; d < devices(); ++d) {
    const model::Portion own = portion(d);
    for (const auto& kind : state.values) {
      for (size_t i = 0; i < parameters.size(); ++i) {
        const ModelParameter& p = parameters[i];
        const std::vector<float> part =
            model::take_part(p, kind[i], own.head_part, own.head_parts);
        auto buffer = send(d, {Dtype::f32, model::part_shape(options.mesh, p)},
                           part.data());
        if (!buffer) return buffer.error();
        sent[d].push_back(std::move(*buffer));
      }
    }
  }
  values = std::move(sent);
  step = state.step;
  return {};
}

// Reads the parts from the devices with the first rows and tokens.
Result<std::vector<float>> Trainer::State::fetch_values(size_t kind,
                                                        size_t i) const {
  const ModelParameter& p = parameters[i];
  const bool split = model::is_split(options.mesh, p);
  std::vector<float> whole(static_cast<size_t>(p.size()));
  for (size_t d = 0; d < devices(); ++d) {
    const model::Portion own = portion(d);
    if (own.row_part > 0 || own.token_part > 0) continue;
    if (!split && own.head_part > 0) continue;
    const int64_t parts = split ? own.head_parts : 1;
    std::vector<float> part(whole.size() / static_cast<size_t>(parts));
    auto ok = pjrt::to_host(values[d][kind * parameters.size() + i],
                            part.data(), static_cast<int64_t>(4 * part.size()));
    if (!ok) return ok.error();
    model::give_part(p, part, own.head_part, parts, whole);
  }
  return whole;
}

Result<model::TrainState> Trainer::State::fetch() const {
  if (values.empty()) {
    return invalid("train",
                   "a trainer must have a state: restore a checkpoint (a step "
                   "that fails may take the state with it), found none");
  }
  model::TrainState out;
  out.step = step;
  for (size_t kind = 0; kind < model::kStateNames.size(); ++kind) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      auto whole = fetch_values(kind, i);
      if (!whole) return whole.error();
      out.values[kind].push_back(std::move(*whole));
    }
  }
  return out;
}

Error Trainer::State::failed(Error why) {
  for (const std::vector<pjrt::Buffer>& of_device : values) {
    if (!std::ranges::any_of(of_device, pjrt::is_gone)) continue;
    values.clear();
    break;
  }
  return why;
}

Result<void> Trainer::State::spread() {
  const std::vector<BorrowedBatch>& all = batches.front();
  auto made = model::spread_rows(*planned.spread, all);
  if (!made) return made.error();
  shards = std::move(*made);
  handed.assign(shards.front().shards.size(), {});
  for (size_t i = 0; i < all.size(); ++i) {
    auto integers =
        model::spread_integers(planned.shape.places[i], all[i], shards[i]);
    if (!integers) return integers.error();
    for (size_t s = 0; s < handed.size(); ++s) handed[s].merge((*integers)[s]);
  }
  order = token_order(all.front(), shards.front(), true);
  return {};
}

Result<void> Trainer::State::plan(const Rows& rows) {
  const TraceSpan span("train", "plan");
  const Facts all = rows.facts();
  batches.resize(devices());
  queries.resize(devices());
  for (size_t d = 0; d < devices(); ++d) {
    if (planner(d) != d) continue;
    const Facts facts =
        planned.spread ? all : model::facts_of(all, portion(d), queries[d]);
    auto ok = model::remake_batches(planned.requests, facts, batches[d]);
    if (!ok) return ok;
  }
  return planned.spread ? spread() : Result<void>();
}

double Trainer::State::attention_flops(int64_t tiles) const {
  const TrainOptions& o = options;
  const auto product = [](int64_t a, int64_t b) {
    return static_cast<double>(a) * static_cast<double>(b);
  };
  const double pairs =
      model::is_dense(o.spec)
          ? static_cast<double>(o.rows) * product(o.tokens, o.tokens)
          : static_cast<double>(tiles) * product(o.tile.q, o.tile.kv);
  return (o.recompute ? 18 : 14) * product(o.model.heads, o.model.head_dim) *
         pairs;
}

// Tiles are those of one head, or of each head that picks. Devices that differ
// only in heads have the same tiles.
void Trainer::State::tell(StepReport& out) const {
  int64_t most = 0;  // of each layer's busiest device
  double mean = 0;
  const auto add = [&](const std::vector<int64_t>& tiles, int64_t heads) {
    int64_t all = 0;
    for (const int64_t n : tiles) all += n;
    out.tiles_planned += heads * all;
    out.attention_flops += attention_flops(all);
    most += *std::ranges::max_element(tiles);
    mean += static_cast<double>(all) / static_cast<double>(tiles.size());
  };
  const size_t masks = planned.requests.size();
  for (int64_t layer = 0; layer < options.model.layers; ++layer) {
    const auto at = static_cast<size_t>(layer) % masks;
    const model::AttentionPlace& its = planned.shape.places[at];
    const int64_t heads =
        model::picking_heads(its.route, its.shape.heads, its.shape.kv_heads);
    std::vector<int64_t> tiles;
    for (size_t d = 0; d < devices(); ++d) {
      const auto device = static_cast<int64_t>(d);
      if (model::first_of_heads(options.mesh, device) != device) continue;
      tiles.push_back(static_cast<int64_t>(
          planned.spread ? shards[at]
                               .shards[model::shard_of(portion(d))]
                               .forward.entries.size()
                         : batches[d][at].plan().forward.entries.size()));
    }
    add(tiles, heads);
    const model::Sent sent =
        model::sent_by_layer(options, planned.spread ? &shards[at] : nullptr);
    out.sent += sent.bytes;
    out.all_gather += sent.all_gather;
  }
  if (mean > 0) out.tiles_max_over_mean = static_cast<double>(most) / mean;
}

Result<pjrt::Buffer> Trainer::State::send_rates(size_t device,
                                                const StepRates& rates) const {
  const double t = static_cast<double>(step + 1);
  const OptimizerSettings& a = options.optimizer;
  std::array<float, model::kRates> scalars{};
  const auto set = [&](model::Rate which, double v) {
    scalars[static_cast<size_t>(which)] = static_cast<float>(v);
  };
  set(model::Rate::learning, rates.learning_rate);
  set(model::Rate::correct1, 1 / (1 - std::pow(a.beta1, t)));
  set(model::Rate::correct2, 1 / (1 - std::pow(a.beta2, t)));
  set(model::Rate::max_norm, rates.max_norm);
  return send(device, {Dtype::f32, {model::kRates}}, scalars.data());
}

std::vector<int32_t> Trainer::State::part_of(size_t device, RowColumn column,
                                             const Rows& rows) const {
  const model::Portion own = portion(device);
  if (!planned.spread) {
    return model::part_of(rows.column(column), rows.rows, own);
  }
  return model::taken(rows.column(column), model::tokens_of(order, own));
}

Result<model::Integers> Trainer::State::plan_integers(size_t device) const {
  model::Integers out;
  for (size_t i = 0; i < planned.requests.size(); ++i) {
    auto of_plan = model::plan_integers(planned.shape.places[i],
                                        batches[planner(device)][i]);
    if (!of_plan) return of_plan.error();
    out.merge(*of_plan);
  }
  return out;
}

Result<std::vector<pjrt::Buffer>> Trainer::State::send_batch(
    size_t device, const Rows& rows) const {
  const TraceSpan span("train", "send");
  Result<model::Integers> own{model::Integers{}};
  if (!planned.spread) own = plan_integers(device);
  if (!own) return own.error();
  const model::Integers& integers =
      planned.spread ? handed[model::shard_of(portion(device))] : *own;
  std::vector<pjrt::Buffer> out;
  for (const xla::Argument& arg : model::batch_arguments(planned.shape)) {
    const auto column =
        std::ranges::find(columns, arg.name, &model::TakenColumn::name);
    const bool is_plans = column == columns.end();
    std::vector<int32_t> part;
    if (!is_plans) part = part_of(device, column->column, rows);
    const auto& numbers = is_plans ? integers.at(arg.name) : part;
    auto buffer = send(device, {Dtype::i32, arg.type.dims}, numbers.data());
    if (!buffer) return buffer.error();
    out.push_back(std::move(*buffer));
  }
  return out;
}

}  // namespace tessera
