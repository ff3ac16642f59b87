// cli/train/report.cc: lines for people, one object for programs.
#include "cli/train/report.h"

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <vector>

#include "cli/plan/report.h"
#include "model/precision.h"
#include "model/routes.h"
#include "tessera/version.h"

namespace tessera::cli {

using nlohmann::json;

int64_t numbers_of(const std::vector<ModelParameter>& parameters) {
  return std::accumulate(
      parameters.begin(), parameters.end(), int64_t{0},
      [](int64_t n, const ModelParameter& p) { return n + p.size(); });
}

namespace {

// A line for each way in which layers are clustered.
std::string clustered_text(const ModelConfig& m) {
  std::map<std::string, std::vector<int64_t>> layers;
  for (int64_t i = 0; i < m.layers; ++i) {
    const LayerRoute route = model::of_layer(m.routes, i);
    if (route.top > 0) layers[model::route_text(route)].push_back(i);
  }
  std::string out;
  for (const auto& [route, numbers] : layers) {
    out += fmt::format("clustered  {} within the step: layers {}\n", route,
                       fmt::join(numbers, ", "));
  }
  return out;
}

// Of a forward pass, a line a slot.
std::string work_text(const std::vector<SlotWork>& slots) {
  std::string out;
  const auto bytes = [](int64_t n) {
    return n < 1000 ? fmt::format("{} ", n) : with_unit(static_cast<double>(n));
  };
  for (const SlotWork& s : slots) {
    out += fmt::format(
        "{:<10} {:<13} {} FLOP; {}B of inputs, {}B of parameters, {}B of "
        "outputs, {}B kept\n",
        out.empty() ? "forward" : "", s.slot,
        s.flops ? with_unit(*s.flops) : "the batch's", bytes(s.bytes.inputs),
        bytes(s.bytes.parameters), bytes(s.bytes.outputs), bytes(s.bytes.kept));
  }
  return out;
}

json work_json(const std::vector<SlotWork>& slots) {
  json out = json::array();
  for (const SlotWork& s : slots) {
    out.push_back({{"slot", s.slot},
                   {"flops", s.flops ? json(*s.flops) : json()},
                   {"bytes",
                    {{"inputs", s.bytes.inputs},
                     {"parameters", s.bytes.parameters},
                     {"outputs", s.bytes.outputs},
                     {"kept", s.bytes.kept}}}});
  }
  return out;
}

}  // namespace

Result<ModelWork> work_of(const TrainOptions& options) {
  auto parameters = model_parameters(options.model, options.spec);
  if (!parameters) return parameters.error();
  auto slots = model_work(options);
  if (!slots) return slots.error();
  return ModelWork{numbers_of(*parameters), std::move(*slots)};
}

std::string model_text(const TrainSettings& s, const ModelWork& work) {
  std::string out = fmt::format(
      "model      {} layers, {} parameters; spec {}: attention by {}\n"
      "precision  {}\n",
      s.options.model.layers, work.parameters, s.options.spec.name,
      s.options.spec.of(Slot::attention),
      model::precision_text(s.options.precision));
  out += clustered_text(s.options.model);
  out += work_text(work.slots);
  if (s.options.mesh.axes.empty()) return out;
  const Mesh& mesh = s.options.mesh;
  const std::string heads =
      mesh.has("head") ? fmt::format(" and {} of {} heads",
                                     s.options.model.heads / mesh.size("head"),
                                     s.options.model.heads)
                       : "";
  return out +
         fmt::format("mesh       {}: {} rows of {} tokens{} on each device\n",
                     to_string(mesh), s.options.rows / mesh.size("data"),
                     s.options.tokens / mesh.size("seq"), heads);
}

json specs_json(const std::string& specs) {
  return specs.empty() ? json() : json(specs);
}

json model_json(const TrainSettings& s, const ModelWork& work) {
  json slots;
  for (size_t i = 0; i < kSlots; ++i) {
    slots[std::string(to_string(static_cast<Slot>(i)))] =
        s.options.spec.factories[i];
  }
  return {
      {"version", kVersion},
      {"spec", s.options.spec.name},
      {"slots", slots},
      {"model", json::parse(to_json(s.options.model))},
      {"parameters", work.parameters},
      {"work", work_json(work.slots)},
      {"mesh",
       s.options.mesh.axes.empty() ? json() : json(to_string(s.options.mesh))},
      {"precision", json::parse(model::precision_json(s.options.precision))},
  };
}

std::string head_text(const Trainer& trainer, const TrainSettings& s,
                      const ModelWork& work, const data::RowFiles& data) {
  const TrainCounters counters = trainer.counters();
  return model_text(s, work) +
         fmt::format(
             "data       {} rows of {} tokens, {} a step\n"
             "program    {} on {}: {} in {:.0f} ms\n",
             data.rows(), data.tokens(), s.options.rows, trainer.program_key(),
             trainer.place().device,
             counters.compiles > 0 ? "compiled" : "found on disk",
             counters.compile_ms);
}

std::string step_text(const TrainSettings& s, const StepReport& step,
                      double seconds) {
  return fmt::format(
      "step {:>6} of {}   loss {:<8.4f} norm {:<8.3f} {:>8.0f} tokens/s\n",
      step.step, s.steps, step.loss, step.gradient_norm,
      static_cast<double>(step.tokens) / seconds);
}

json train_json(const Trainer& trainer, const TrainSettings& s,
                const ModelWork& work, const History& h) {
  const TrainCounters counters = trainer.counters();
  const PluginPlace& place = trainer.place();
  json out = model_json(s, work);
  out.update({
      {"plugin", place.plugin},
      {"platform_version", place.platform_version},
      {"device", place.device},
      {"program", trainer.program_key()},
      {"specs", specs_json(trainer.program_specs())},
      {"compiles", counters.compiles},
      {"disk_hits", counters.disk_hits},
      {"compile_ms", counters.compile_ms},
      {"rows", s.options.rows},
      {"tokens", s.options.tokens},
      {"first_step", h.first},
      {"steps", s.steps},
      {"losses", h.losses},
      {"tokens_that_count", h.tokens},
      {"tiles_run", h.tiles_run},
      {"tiles_planned", h.tiles_planned},
      {"seconds", h.seconds},
  });
  return out;
}

}  // namespace tessera::cli
