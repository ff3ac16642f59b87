// model/trainer.cc: opens a trainer, takes steps, gives its state.
#include <cmath>
#include <utility>

#include "base/fail.h"
#include "base/shape.h"
#include "base/timed.h"
#include "base/trace.h"
#include "lanes/cpu/ffi_handlers.h"
#include "lanes/cpu/plugin_calls.h"
#include "lanes/mosaic/tpu.h"
#include "lanes/xla/client_options.h"
#include "model/program.h"
#include "model/start.h"
#include "model/trainer_state.h"

namespace tessera {
namespace {

using model::check_rows_of;
using model::columns_of;

constexpr int64_t kMaxLogits = int64_t{1} << 30;  // of one call

// TPU kernels run on a TPU alone, and not every plugin calls those of the CPU.
Result<pjrt::Place> open_device(const TrainOptions& o,
                                const pjrt::ClientOptions& client) {
  if (!model::has_kernels(o.spec)) {
    if (model::calls_cpu(o.spec)) {
      if (auto there = cpu::ffi_handlers(); !there) return there.error();
    }
    auto place = pjrt::open_place(o.xla.plugin, o.xla.device, client);
    if (!place || !model::calls_cpu(o.spec)) return place;
    if (auto e = cpu::add_handlers(*place); !e) return e.error();
    return place;
  }
  auto tpu = mosaic::open_tpu(o.xla, client);
  if (!tpu) return tpu.error();
  return tpu->on;
}

}  // namespace

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
  auto text = model::step_program(state->planned.shape);
  if (!text) return text.error();
  state->key = model::program_key(*text);
  const size_t results =
      model::kStateNames.size() * state->parameters.size() + 3;
  auto program = state->compile(std::move(*text), results);
  if (!program) return program.error();
  state->program = std::move(*program);
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
  auto scalars = s.send_rates(rates);
  if (!scalars) return scalars.error();
  auto batch = timed(out.transfer_ms, [&] { return s.send_batch(rows); });
  if (!batch) return batch.error();

  std::vector<const pjrt::Buffer*> inputs;
  for (const pjrt::Buffer& b : s.values) inputs.push_back(&b);
  inputs.push_back(&*scalars);
  for (const pjrt::Buffer& b : *batch) inputs.push_back(&b);
  const TraceSpan span("train", "step");
  auto results =
      timed(out.run_ms, [&] { return pjrt::execute(*s.program, inputs); });
  s.values.clear();  // donated: the program wrote over them
  if (!results) return results.error();
  float loss = 0, norm = 0;
  int32_t tiles = 0;
  const size_t state_size = model::kStateNames.size() * s.parameters.size();
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

Result<std::vector<float>> Trainer::logits(const Rows& rows) {
  State& s = *state_;
  if (s.values.empty()) return s.fetch().error();
  if (auto e = check_rows_of(s.options, s.columns, rows, 0); !e) {
    return e.error();
  }
  const std::vector<int64_t> shape = {s.options.rows, s.options.tokens,
                                      s.options.model.vocab};
  const auto count = element_count(shape);
  if (!count || *count > kMaxLogits) {
    return over_limit("train",
                      "logits must be at most {}, found {} tokens of "
                      "{}",
                      kMaxLogits, shape[0] * shape[1], shape[2]);
  }
  if (!s.logits) {
    auto text = model::logits_program(s.planned.shape);
    if (!text) return text.error();
    auto program = s.compile(std::move(*text), 1);
    if (!program) return program.error();
    s.logits = std::move(*program);
  }
  if (auto e = s.plan(rows); !e) return e.error();
  auto batch = s.send_batch(rows);
  if (!batch) return batch.error();
  std::vector<const pjrt::Buffer*> inputs;
  for (size_t i = 0; i < s.parameters.size(); ++i) {
    inputs.push_back(&s.values[i]);
  }
  for (const pjrt::Buffer& b : *batch) inputs.push_back(&b);
  const TraceSpan span("train", "logits");
  auto results = pjrt::execute(*s.logits, inputs);
  if (!results) return results.error();
  std::vector<float> out(static_cast<size_t>(*count));
  auto ok = pjrt::to_host(results->front(), out.data(), 4 * *count);
  if (!ok) return ok.error();
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
