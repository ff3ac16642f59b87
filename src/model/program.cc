// model/program.cc: programs of a model: their arguments and results.
#include "model/program.h"

#include <array>
#include <utility>

#include "model/checkpoint.h"
#include "model/decoder.h"
#include "model/mesh.h"

namespace tessera::model {
namespace {

std::vector<xla::Argument> arguments_of(
    const StepShape& s, const std::vector<ModelParameter>& parameters,
    std::string_view prefix) {
  std::vector<xla::Argument> out;
  out.reserve(parameters.size());
  for (const ModelParameter& p : parameters) {
    out.push_back(
        {std::string(prefix) + p.name, {s.wide, part_shape(s.mesh, p)}});
  }
  return out;
}

Values arguments_named(const Writer& w,
                       const std::vector<xla::Argument>& named) {
  Values out;
  for (const xla::Argument& a : named) out.push_back(w.argument(a.name));
  return out;
}

}  // namespace

std::vector<std::string> column_names(const ModelConfig& model) {
  std::vector<std::string> out = {"input_ids", "target_ids", "loss_mask",
                                  "positions"};
  for (const auto& [name, size] : model.columns) out.push_back(name);
  return out;
}

std::vector<xla::Argument> batch_arguments(const StepShape& s) {
  std::vector<xla::Argument> out;
  for (std::string& name : column_names(s.model)) {
    out.push_back({std::move(name), {Element::i32, {s.batch, s.tokens}}});
  }
  for (const AttentionPlace& place : s.places) {
    for (xla::Argument& a : integers_of(place)) out.push_back(std::move(a));
  }
  return out;
}

namespace {

// What a function that writes a program returns.
struct Made {
  Values results;
  ProgramEnds::Placed placed;
};
// Places the parameters, the first of which is argument or result `at`.
void place_parameters(const StepShape& s,
                      const std::vector<ModelParameter>& parameters, size_t at,
                      ProgramEnds::Placed& out) {
  for (const ModelParameter& p : parameters) {
    if (is_split(s.mesh, p)) out[at] = axes_on(s.mesh, p);
    ++at;
  }
}
// The norm over all gradients. Each element counts once, on whichever device.
Value norm_of(Writer& w, const StepShape& s,
              const std::vector<ModelParameter>& parameters,
              const Values& gradients) {
  Values whole, split;
  for (size_t i = 0; i < parameters.size(); ++i) {
    (is_split(s.mesh, parameters[i]) ? split : whole).push_back(gradients[i]);
  }
  Value sum = squares_of(w, whole);
  if (!split.empty()) {
    const Values own = {squares_of(w, split)};
    sum = w.add(sum, sum_over_devices(w, partners_of(s.mesh), own).front());
  }
  return w.sqrt(sum);
}

template <class F>
Result<std::string> program_of_parameters(const StepShape& s,
                                          std::string_view name, F&& write) {
  auto parameters = model_parameters(s.model, s.spec);
  if (!parameters) return parameters.error();
  const std::vector<xla::Argument> state = arguments_of(s, *parameters, "");
  std::vector<xla::Argument> all = state;
  for (xla::Argument& a : batch_arguments(s)) all.push_back(std::move(a));
  Writer w(all, s.wide);
  Result<Made> made = write(w, arguments_named(w, state));
  if (!made) return made.error();
  ProgramEnds ends = {
      std::move(all), std::move(made->results), {}, std::move(made->placed)};
  place_parameters(s, *parameters, 0, ends.arguments_placed);
  return write_module(w, name, s, ends);
}

// On a mesh each device has its own tile count, in result `at`.
ProgramEnds::Placed own_at(const StepShape& s, size_t at, const Value& tiles) {
  if (s.devices() == 1) return {};
  return {{at, axes_of(s.mesh, tiles.type, Lies::own)}};
}

}  // namespace

Result<std::string> loss_program(const StepShape& s, bool gradients) {
  const auto write = [&](Writer& w, const Values& parameters) -> Result<Made> {
    auto made = write_step(w, s, parameters, gradients);
    if (!made) return made.error();
    Made out = {{made->loss, made->tiles}, own_at(s, 1, made->tiles)};
    append(out.results, made->gradients);
    if (gradients) {
      place_parameters(s, *model_parameters(s.model, s.spec), 2, out.placed);
    }
    return out;
  };
  return program_of_parameters(s, "tessera_loss", write);
}

Result<std::string> logits_program(const StepShape& s) {
  const auto write = [&](Writer& w, const Values& parameters) -> Result<Made> {
    auto made = write_step_logits(w, s, parameters);
    if (!made) return made.error();
    return Made{{*made}, {{0, axes_of(s.mesh, made->type, Lies::divided)}}};
  };
  return program_of_parameters(s, "tessera_logits", write);
}

Result<std::string> step_program(const StepShape& s) {
  auto numbers = model_parameters(s.model, s.spec);
  if (!numbers) return numbers.error();
  std::array<std::vector<xla::Argument>, kStateNames.size()> state;
  std::vector<xla::Argument> all;
  for (size_t i = 0; i < state.size(); ++i) {
    state[i] = arguments_of(s, *numbers, kStateNames[i]);
    all.insert(all.end(), state[i].begin(), state[i].end());
  }
  Writer::Reuse reuse;
  for (size_t i = 0; s.gives_state && i < all.size(); ++i) {
    reuse.emplace_back(all[i].name, i);
  }
  all.push_back({"rates", {s.wide, {kRates}}});
  for (xla::Argument& a : batch_arguments(s)) all.push_back(std::move(a));
  Writer w(all, s.wide);
  const Values parameters = arguments_named(w, state[0]);
  auto made = write_step(w, s, parameters, true);
  if (!made) return made.error();

  w.comment("optimizer");
  const Value& rates = w.argument("rates");
  const Value norm = norm_of(w, s, *numbers, made->gradients);
  const Value scale = clip_scale(w, norm, rates);
  std::array<Values, kStateNames.size()> next;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Moments before = {parameters[i], w.argument(state[1][i].name),
                            w.argument(state[2][i].name)};
    Moments after =
        write_adamw(w, s.optimizer, before, made->gradients[i], rates, scale);
    next[0].push_back(std::move(after.value));
    next[1].push_back(std::move(after.first));
    next[2].push_back(std::move(after.second));
  }
  Values results;
  for (const Values& each : next) append(results, each);
  for (const Value& v : {made->loss, norm, made->tiles}) results.push_back(v);
  ProgramEnds ends = {std::move(all), std::move(results), {}, {}};
  ends.results_placed = own_at(s, ends.results.size() - 1, made->tiles);
  for (size_t i = 0; i < state.size(); ++i) {
    const size_t at = i * numbers->size();
    place_parameters(s, *numbers, at, ends.arguments_placed);
    place_parameters(s, *numbers, at, ends.results_placed);
  }
  return write_module(w, "tessera_step", s, ends, reuse);
}

}  // namespace tessera::model
