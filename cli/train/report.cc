// cli/train/report.cc: a training run in lines for people.
#include "cli/train/report.h"

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <vector>

#include "cli/plan/report.h"
#include "model/precision.h"
#include "model/routes.h"

namespace tessera::cli {

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
std::string work_text(
    const std::vector<receipt::Receipt::Training::Work>& slots) {
  std::string out;
  const auto bytes = [](int64_t n) {
    return n < 1000 ? fmt::format("{} ", n) : with_unit(static_cast<double>(n));
  };
  for (const receipt::Receipt::Training::Work& s : slots) {
    out += fmt::format(
        "{:<10} {:<13} {} FLOP; {}B of inputs, {}B of parameters, {}B of "
        "outputs, {}B kept\n",
        out.empty() ? "forward" : "", s.slot,
        s.flops ? with_unit(*s.flops) : "the batch's", bytes(s.inputs),
        bytes(s.parameters), bytes(s.outputs), bytes(s.kept));
  }
  return out;
}

}  // namespace

std::string model_text(const TrainSettings& s, const receipt::Receipt& r) {
  std::string out = fmt::format(
      "model      {} layers, {} parameters; spec {}: attention by {}\n"
      "precision  {}\n",
      s.options.model.layers, r.training.parameters, s.options.spec.name,
      s.options.spec.of(Slot::attention),
      model::precision_text(s.options.precision));
  out += clustered_text(s.options.model);
  out += work_text(r.training.work);
  if (s.options.mesh.axes.empty()) return out;
  const Mesh& mesh = s.options.mesh;
  const std::string heads =
      mesh.has("head") ? fmt::format(" and {} of {} heads",
                                     s.options.model.heads / mesh.size("head"),
                                     s.options.model.heads)
                       : "";
  const int64_t rows = s.options.rows / mesh.size("data");
  out += s.options.shards
             ? fmt::format(
                   "mesh       {}: a part of the tokens of {} rows{} on "
                   "each device\n",
                   to_string(mesh), rows, heads)
             : fmt::format(
                   "mesh       {}: {} rows of {} tokens{} on each "
                   "device\n",
                   to_string(mesh), rows, s.options.tokens / mesh.size("seq"),
                   heads);
  if (!r.training.exchange) return out;
  const receipt::Receipt::Training::Exchange& e = *r.training.exchange;
  out += fmt::format("exchange   {}, balance {}", e.kind, e.balance);
  if (!e.work.empty()) out += fmt::format(", work {}", e.work);
  if (!e.evenness.empty()) out += fmt::format(", evenness {}", e.evenness);
  if (!e.ceilings.empty()) out += fmt::format(", ceilings '{}'", e.ceilings);
  return out + "\n";
}

std::string head_text(const TrainSettings& s, const receipt::Receipt& r,
                      const data::RowFiles& data) {
  return model_text(s, r) + fmt::format(
                                "data       {} rows of {} tokens, {} a step\n"
                                "program    {} on {}: {} in {:.0f} ms\n",
                                data.rows(), data.tokens(), s.options.rows,
                                r.training.program, r.plugin->device,
                                r.compiles > 0 ? "compiled" : "found on disk",
                                r.compile_ms);
}

std::string step_text(const TrainSettings& s, const StepReport& step,
                      double seconds) {
  return fmt::format(
      "step {:>6} of {}   loss {:<8.4f} norm {:<8.3f} {:>8.0f} tokens/s\n",
      step.step, s.steps, step.loss, step.gradient_norm,
      static_cast<double>(step.tokens) / seconds);
}

std::string end_text(const receipt::Receipt& r) {
  std::string out = fmt::format(
      "trained    {} tokens in {:.1f} s; {} score tiles run, {} planned\n",
      r.training.counted, r.training.seconds, r.training.tiles_run,
      r.training.tiles_planned);
  if (!r.training.exchange) return out;
  const receipt::Receipt::Training::Exchange& e = *r.training.exchange;
  return out +
         fmt::format(
             "exchange   {}B sent by attention along seq, where gathering "
             "sends {}B; the busiest device has {:.2f} of the mean of "
             "tiles\n",
             with_unit(static_cast<double>(e.sent)),
             with_unit(static_cast<double>(e.all_gather)),
             e.tiles_max_over_mean);
}

}  // namespace tessera::cli
