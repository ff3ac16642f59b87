// model/open_trainer.cc: compiles a trainer's step, and gives it a state.
#include <fmt/format.h>

#include <utility>

#include "base/digest.h"
#include "base/fail.h"
#include "base/text.h"
#include "lanes/cpu/ffi_handlers.h"
#include "lanes/cpu/plugin_calls.h"
#include "lanes/mosaic/tpu.h"
#include "lanes/xla/client_options.h"
#include "model/mesh.h"
#include "model/program.h"
#include "model/start.h"
#include "model/trainer_state.h"

namespace tessera {
namespace {

// TPU kernels run on a TPU only, and some plugins cannot call CPU kernels.
Result<pjrt::Places> open_devices(const TrainOptions& o,
                                  const pjrt::ClientOptions& client) {
  const int64_t devices = o.mesh.devices();
  XlaOptions xla = o.xla;
  xla.plugin = model::plugin_of(o);
  if (model::has_kernels(o.spec)) {
    auto tpu = mosaic::open_tpu(xla, client);
    if (!tpu) return tpu.error();
    return pjrt::take_devices(*tpu->on.client, xla.device, devices);
  }
  if (model::calls_cpu(o.spec)) {
    if (auto there = cpu::ffi_handlers(); !there) return there.error();
  }
  auto on = pjrt::open_devices(xla.plugin, xla.device, devices, client);
  if (!on || !model::calls_cpu(o.spec)) return on;
  auto e = cpu::add_handlers({on->client, &on->devices.front()});
  if (!e) return e.error();
  return on;
}

// Known problems of a plugin (docs/train.md), which is used all the same.
std::vector<std::string> plugin_warnings(const TrainOptions& o,
                                         const PluginPlace& place) {
  if (o.mesh.devices() == 1 || !model::is_xla_cpu_pjrt(place.plugin)) return {};
  return {fmt::format(
      "[train] devices of a mesh must give the right gradients each time, as "
      "those of {} do, found xla_cpu_pjrt, whose are wrong once in a while, "
      "for {}",
      default_plugin(o.spec), in_quotes(to_string(o.mesh)))};
}

// A trainer's state without the values of parameters.
Result<std::unique_ptr<Trainer::State>> make_state(
    const TrainOptions& options, model::PlannedStep planned,
    std::vector<ModelParameter> parameters) {
  auto client_options = xla::read_client_options(options.xla.client_options);
  if (!client_options) return client_options.error();
  auto on = open_devices(options, *client_options);
  if (!on) return on.error();
  if (options.shards && options.shards->exchange == TileExchange::ragged &&
      on->client->platform() != "tpu") {
    return unavailable("train",
                       "a ragged exchange must be on a TPU, found platform {}",
                       on->client->platform());
  }
  auto lowering =
      model::lower_step(options, chip_of_device(on->devices.front().kind));
  if (!lowering) return lowering.error();
  auto state =
      std::make_unique<Trainer::State>(options, std::move(planned), *on);
  state->columns = model::columns_of(options.model);
  state->parameters = std::move(parameters);
  state->lowering = std::move(*lowering);
  state->place = pjrt::describe({on->client, &on->devices.front()});
  state->counters.plugin_warnings = plugin_warnings(options, state->place);
  auto text = model::step_program(state->planned.shape);
  if (!text) return text.error();
  state->key = digest_of(*text);
  auto specs = model::program_specs(state->planned.shape, *text);
  if (!specs) return specs.error();
  state->specs = std::move(*specs);
  const size_t results =
      model::kStateNames.size() * state->parameters.size() + 3;
  auto program = state->compile(std::move(*text), results);
  if (!program) return program.error();
  state->program = std::move(*program);
  return state;
}

}  // namespace

Result<Trainer> Trainer::compile(const TrainOptions& options) {
  auto planned = model::plan_step(options);
  if (!planned) return planned.error();
  auto parameters = model_parameters(options.model, options.spec);
  if (!parameters) return parameters.error();
  auto state = make_state(options, std::move(*planned), std::move(*parameters));
  if (!state) return state.error();
  return Trainer(std::move(*state));
}

Result<Trainer> Trainer::open(const TrainOptions& options) {
  auto trainer = compile(options);
  if (!trainer) return trainer;
  model::TrainState start;
  for (const ModelParameter& p : trainer->parameters()) {
    start.values[0].push_back(model::start_values(p, options.seed));
    for (const size_t kind : {1, 2}) {
      start.values[kind].emplace_back(static_cast<size_t>(p.size()), 0.0F);
    }
  }
  if (auto e = trainer->state_->put(start); !e) return e.error();
  return trainer;
}

Result<Trainer> Trainer::open(const TrainOptions& options,
                              std::string_view checkpoint,
                              std::string_view name) {
  auto parameters = model_parameters(options.model, options.spec);
  if (!parameters) return parameters.error();
  auto values =
      model::read_checkpoint(checkpoint, options.model, *parameters, name);
  if (!values) return values.error();
  auto planned = model::plan_step(options);
  if (!planned) return planned.error();
  auto state = make_state(options, std::move(*planned), std::move(*parameters));
  if (!state) return state.error();
  if (auto e = (*state)->put(*values); !e) return e.error();
  return Trainer(std::move(*state));
}

Result<std::string> Trainer::program_text(const TrainOptions& options) {
  auto planned = model::plan_step(options);
  if (!planned) return planned.error();
  return model::step_program(planned->shape);
}

}  // namespace tessera
