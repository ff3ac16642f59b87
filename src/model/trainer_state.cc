// model/trainer_state.cc: programs compiled, state and batches sent.
#include "model/trainer_state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "base/fail.h"
#include "base/timed.h"
#include "base/trace.h"
#include "model/optimizer.h"
#include "model/plans.h"
#include "model/program.h"

namespace tessera {

Result<Trainer::State::Program> Trainer::State::compile(std::string text,
                                                        size_t results) {
  const std::string of = model::program_key(text);
  double ms = 0;
  auto found = timed(ms, [&] {
    return programs.get(*on.client, on.devices,
                        {of, "{\"program\":\"" + of + "\"}"},
                        [&] { return Result<std::string>(std::move(text)); });
  });
  if (!found) return found.error();
  counters.compile_ms += ms;
  counters.compiles += found->found == pjrt::Found::compiled;
  counters.disk_hits += found->found == pjrt::Found::disk;
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

// Parts from the devices that have the first rows and tokens.
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
                   "a step failed and took the state with it: restore a "
                   "checkpoint, found none");
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

Result<void> Trainer::State::plan(const Rows& rows) {
  const TraceSpan span("train", "plan");
  const Facts all = rows.facts();
  batches.resize(devices());
  queries.resize(devices());
  for (size_t d = 0; d < devices(); ++d) {
    if (planner(d) != d) continue;
    const Facts facts = model::facts_of(all, portion(d), queries[d]);
    for (size_t i = 0; i < planned.requests.size(); ++i) {
      if (i < batches[d].size()) {
        if (auto e = batches[d][i].remake(facts); !e) return e;
        continue;
      }
      auto made = BorrowedBatch::make(planned.requests[i], facts);
      if (!made) return made.error();
      batches[d].push_back(std::move(*made));
    }
  }
  return {};
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

Result<std::vector<pjrt::Buffer>> Trainer::State::send_batch(
    size_t device, const Rows& rows) const {
  const TraceSpan span("train", "send");
  std::map<std::string, std::vector<int32_t>> integers;
  for (size_t i = 0; i < planned.requests.size(); ++i) {
    auto of_plan = model::plan_integers(planned.shape.places[i],
                                        batches[planner(device)][i]);
    if (!of_plan) return of_plan.error();
    integers.merge(*of_plan);
  }
  std::vector<pjrt::Buffer> out;
  for (const xla::Argument& arg : model::batch_arguments(planned.shape)) {
    const auto column =
        std::ranges::find(columns, arg.name, &model::TakenColumn::name);
    const std::vector<int32_t> numbers =
        column != columns.end() ? model::part_of(rows.column(column->column),
                                                 rows.rows, portion(device))
                                : std::move(integers.at(arg.name));
    auto buffer = send(device, {Dtype::i32, arg.type.dims}, numbers.data());
    if (!buffer) return buffer.error();
    out.push_back(std::move(*buffer));
  }
  return out;
}

}  // namespace tessera
