// model/trainer.cc: state on the device, a batch there, a step, its numbers
// back.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "base/fail.h"
#include "base/timed.h"
#include "base/trace.h"
#include "lanes/mosaic/tpu.h"
#include "lanes/xla/client_options.h"
#include "model/checkpoint.h"
#include "model/columns.h"
#include "model/plans.h"
#include "model/program.h"
#include "model/start.h"
#include "model/step_plan.h"
#include "pjrt/compile_cache.h"
#include "pjrt/place.h"
#include "tessera/train.h"

namespace tessera {
namespace {

constexpr size_t kKinds = model::kStateNames.size();

// What a step takes of rows, by the name of the program's argument.
struct TakenColumn {
  std::string name;
  RowColumn column;
  int64_t ids = 0;  // its numbers are below this; 0: they are no ids
};

std::vector<TakenColumn> columns_of(const ModelConfig& m) {
  std::vector<TakenColumn> out;
  for (const auto& [column, ids] :
       {std::pair(RowColumn::input_ids, m.vocab),
        std::pair(RowColumn::target_ids, m.vocab),
        std::pair(RowColumn::loss_mask, int64_t{0}),
        std::pair(RowColumn::positions, int64_t{0})}) {
    out.push_back({std::string(spec_of(column).name), column, ids});
  }
  for (const auto& [name, ids] : m.columns) {
    out.push_back({name, *model::find_column(name), ids});
  }
  return out;
}

Result<void> check_ids(const Rows& rows, int64_t first, RowColumn column,
                       int64_t count) {
  const std::vector<int32_t>& ids = rows.column(column);
  const auto tokens = static_cast<size_t>(rows.shape.tokens);
  const auto start = static_cast<size_t>(first);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < count) continue;
    return invalid(
        "train",
        "{} must be below the model's {}, found {} for row {}, token "
        "{}",
        spec_of(column).name, count, ids[i], start + i / tokens, i % tokens);
  }
  return {};
}

// Heads are turned by them: rows that have none, all 0, would not be turned.
Result<void> check_positions(const Rows& rows, int64_t first) {
  const auto& positions = rows.column(RowColumn::positions);
  const auto& documents = rows.column(RowColumn::doc_ids);
  const auto tokens = static_cast<size_t>(rows.shape.tokens);
  for (size_t i = 0; i < positions.size(); ++i) {
    const bool goes_on = i % tokens != 0 && documents[i] >= 0 &&
                         documents[i] == documents[i - 1];
    if (!goes_on || int64_t{positions[i - 1]} + 1 == positions[i]) continue;
    return invalid("train",
                   "positions must rise by 1 within a document, found {} after "
                   "{} for row {}, token {}",
                   positions[i], positions[i - 1],
                   static_cast<size_t>(first) + i / tokens, i % tokens);
  }
  return {};
}

Result<void> check_rows_of(const TrainOptions& o,
                           const std::vector<TakenColumn>& columns,
                           const Rows& rows, int64_t first) {
  if (rows.rows != o.rows || rows.shape.tokens != o.tokens) {
    return invalid("train", "a step takes {} rows of {} tokens, found {} of {}",
                   o.rows, o.tokens, rows.rows, rows.shape.tokens);
  }
  for (const TakenColumn& c : columns) {
    if (c.ids == 0) continue;
    if (auto e = check_ids(rows, first, c.column, c.ids); !e) return e;
  }
  return check_positions(rows, first);
}

// Kernels run on a TPU alone.
Result<pjrt::Place> open_device(const TrainOptions& o,
                                const pjrt::ClientOptions& client) {
  if (!model::has_kernels(o.spec)) {
    return pjrt::open_place(o.xla.plugin, o.xla.device, client);
  }
  auto tpu = mosaic::open_tpu(o.xla, client);
  if (!tpu) return tpu.error();
  return tpu->on;
}

}  // namespace

struct Trainer::State {
  TrainOptions options;
  model::PlannedStep planned;
  std::vector<TakenColumn> columns;
  std::vector<ModelParameter> parameters;
  pjrt::Place on;
  PluginPlace place;
  std::string key;
  std::shared_ptr<const pjrt::Loaded> program;
  TrainCounters counters;
  // Parameters, then their moments; empty where a failed step took them.
  std::vector<pjrt::Buffer> values;
  std::vector<BorrowedBatch> batches;  // one a request
  int64_t step = 0;

  Result<pjrt::Buffer> send(const pjrt::ArrayType& type,
                            const void* data) const {
    return pjrt::to_device(*on.client, *on.device, type, data,
                           pjrt::DataStays::during_call);
  }
  Result<void> compile();
  Result<void> put(const model::TrainState& state);
  Result<model::TrainState> fetch() const;
  Result<void> plan(const Rows& rows);
  Result<std::vector<pjrt::Buffer>> send_batch(const Rows& rows,
                                               const StepRates& rates) const;
};

Result<void> Trainer::State::compile() {
  auto text = model::step_program(planned.shape);
  if (!text) return text.error();
  key = model::program_key(*text);
  const XlaOptions& x = options.xla;
  pjrt::CompileCache cache({.folder = x.cache_folder,
                            .max_bytes = x.max_cache_bytes,
                            .max_compiles = x.max_compiles});
  auto found = timed(counters.compile_ms, [&] {
    return cache.get(*on.client, *on.device,
                     {key, "{\"program\":\"" + key + "\"}"},
                     [&] { return Result<std::string>(std::move(*text)); });
  });
  if (!found) return found.error();
  program = std::move(found->program);
  counters.compiles = found->found == pjrt::Found::compiled;
  counters.disk_hits = found->found == pjrt::Found::disk;
  const size_t results = kKinds * parameters.size() + 3;
  if (program->outputs().size() != results) {
    return invalid("train", "a step must give {} results, found {}", results,
                   program->outputs().size());
  }
  return {};
}

Result<void> Trainer::State::put(const model::TrainState& state) {
  std::vector<pjrt::Buffer> sent;
  for (const auto& kind : state.values) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      auto buffer = send({Dtype::f32, parameters[i].shape}, kind[i].data());
      if (!buffer) return buffer.error();
      sent.push_back(std::move(*buffer));
    }
  }
  values = std::move(sent);
  step = state.step;
  return {};
}

Result<model::TrainState> Trainer::State::fetch() const {
  if (values.empty()) {
    return invalid("train",
                   "a step failed and took the state with it: restore a "
                   "checkpoint, found none");
  }
  model::TrainState out;
  out.step = step;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      std::vector<float> host(static_cast<size_t>(parameters[i].size()));
      const auto bytes = static_cast<int64_t>(4 * host.size());
      auto ok = pjrt::to_host(values[kind * parameters.size() + i], host.data(),
                              bytes);
      if (!ok) return ok.error();
      out.values[kind].push_back(std::move(host));
    }
  }
  return out;
}

Result<void> Trainer::State::plan(const Rows& rows) {
  const TraceSpan span("train", "plan");
  const Facts facts = rows.facts();
  for (size_t i = 0; i < planned.requests.size(); ++i) {
    if (i < batches.size()) {
      if (auto e = batches[i].remake(facts); !e) return e;
      continue;
    }
    auto made = BorrowedBatch::make(planned.requests[i], facts);
    if (!made) return made.error();
    batches.push_back(std::move(*made));
  }
  return {};
}

Result<std::vector<pjrt::Buffer>> Trainer::State::send_batch(
    const Rows& rows, const StepRates& rates) const {
  const TraceSpan span("train", "send");
  std::map<std::string, std::vector<int32_t>> integers;
  for (size_t i = 0; i < batches.size(); ++i) {
    auto of_plan = model::plan_integers(planned.shape.places[i], batches[i]);
    if (!of_plan) return of_plan.error();
    integers.merge(*of_plan);
  }
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

  std::vector<pjrt::Buffer> out;
  auto sent = send({Dtype::f32, {model::kRates}}, scalars.data());
  if (!sent) return sent.error();
  out.push_back(std::move(*sent));
  for (const xla::Argument& arg : model::batch_arguments(planned.shape)) {
    const auto column =
        std::ranges::find(columns, arg.name, &TakenColumn::name);
    const std::vector<int32_t>& numbers = column != columns.end()
                                              ? rows.column(column->column)
                                              : integers.at(arg.name);
    auto buffer = send({Dtype::i32, arg.type.dims}, numbers.data());
    if (!buffer) return buffer.error();
    out.push_back(std::move(*buffer));
  }
  return out;
}

Trainer::Trainer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

Result<Trainer> Trainer::open(const TrainOptions& options) {
  auto planned = model::plan_step(options);
  if (!planned) return planned.error();
  auto parameters = model_parameters(options.model, options.spec);
  if (!parameters) return parameters.error();
  auto client_options = xla::read_client_options(options.xla.client_options);
  if (!client_options) return client_options.error();
  auto on = open_device(options, *client_options);
  if (!on) return on.error();
  auto state = std::make_unique<State>();
  state->options = options;
  state->planned = std::move(*planned);
  state->columns = columns_of(options.model);
  state->parameters = std::move(*parameters);
  state->on = *on;
  state->place = pjrt::describe(*on);
  if (auto e = state->compile(); !e) return e.error();
  model::TrainState start;
  for (const ModelParameter& p : state->parameters) {
    start.values[0].push_back(model::start_values(p, options.seed));
    for (const size_t kind : {1, 2}) {
      start.values[kind].emplace_back(static_cast<size_t>(p.size()), 0.0F);
    }
  }
  if (auto e = state->put(start); !e) return e.error();
  return Trainer(std::move(state));
}

Result<StepReport> Trainer::step(const Rows& rows, const StepRates& rates) {
  State& s = *state_;
  if (s.values.empty()) return s.fetch().error();
  const bool fits = rates.learning_rate >= 0 && rates.max_norm > 0 &&
                    std::isfinite(rates.learning_rate);
  if (!fits) {
    return invalid("train",
                   "a learning rate must be at least 0 and a norm above 0, "
                   "found {} and {}",
                   rates.learning_rate, rates.max_norm);
  }
  if (auto e = check_rows_of(s.options, s.columns, rows, 0); !e) {
    return e.error();
  }
  StepReport out;
  auto ok = timed(out.plan_ms, [&] { return s.plan(rows); });
  if (!ok) return ok.error();
  auto batch =
      timed(out.transfer_ms, [&] { return s.send_batch(rows, rates); });
  if (!batch) return batch.error();

  std::vector<const pjrt::Buffer*> inputs;
  for (const pjrt::Buffer& b : s.values) inputs.push_back(&b);
  for (const pjrt::Buffer& b : *batch) inputs.push_back(&b);
  const TraceSpan span("train", "step");
  auto results =
      timed(out.run_ms, [&] { return pjrt::execute(*s.program, inputs); });
  s.values.clear();  // donated: the program wrote over them
  if (!results) return results.error();
  float loss = 0, norm = 0;
  int32_t tiles = 0;
  const size_t state_size = kKinds * s.parameters.size();
  const std::pair<void*, size_t> numbers[] = {
      {&loss, state_size}, {&norm, state_size + 1}, {&tiles, state_size + 2}};
  for (const auto& [to, at] : numbers) {
    if (auto e = pjrt::to_host((*results)[at], to, 4); !e) return e.error();
  }
  while (results->size() > state_size) results->pop_back();
  s.values = std::move(*results);

  out.step = ++s.step;
  out.loss = static_cast<double>(loss);
  out.gradient_norm = static_cast<double>(norm);
  out.tiles_run = tiles;
  for (const int32_t counts : rows.column(RowColumn::loss_mask)) {
    out.tokens += counts;
  }
  for (int64_t layer = 0; layer < s.options.model.layers; ++layer) {
    const auto at = static_cast<size_t>(layer) % s.batches.size();
    out.tiles_planned +=
        static_cast<int64_t>(s.batches[at].plan().forward.entries.size());
  }
  return out;
}

int64_t Trainer::steps() const { return state_->step; }
const std::vector<ModelParameter>& Trainer::parameters() const {
  return state_->parameters;
}
TrainCounters Trainer::counters() const { return state_->counters; }
const PluginPlace& Trainer::place() const { return state_->place; }
const std::string& Trainer::program_key() const { return state_->key; }

Result<std::string> Trainer::checkpoint() const {
  auto state = state_->fetch();
  if (!state) return state.error();
  return model::write_checkpoint(state_->options.model,
                                 state_->options.precision, state_->parameters,
                                 *state);
}

Result<void> Trainer::check(const TrainOptions& options,
                            std::string_view checkpoint) {
  auto parameters = model_parameters(options.model, options.spec);
  if (!parameters) return parameters.error();
  auto state = model::read_checkpoint(checkpoint, options.model, *parameters);
  if (!state) return state.error();
  return {};
}

Result<void> Trainer::check(const TrainOptions& options, const Rows& rows,
                            int64_t first) {
  return check_rows_of(options, columns_of(options.model), rows, first);
}

Result<void> Trainer::restore(std::string_view checkpoint) {
  auto state = model::read_checkpoint(checkpoint, state_->options.model,
                                      state_->parameters);
  if (!state) return state.error();
  return state_->put(*state);
}

Result<std::string> Trainer::program_text(const TrainOptions& options) {
  auto planned = model::plan_step(options);
  if (!planned) return planned.error();
  return model::step_program(planned->shape);
}

}  // namespace tessera
