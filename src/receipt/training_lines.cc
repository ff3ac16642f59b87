// receipt/training_lines.cc: the lines of a training run.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/of_layer.h"
#include "base/units.h"
#include "receipt/lines.h"
#include "tessera/shard.h"
#include "tessera/train.h"

namespace tessera::receipt {
namespace {

using Training = Receipt::Training;

std::string named(const std::map<std::string, std::string>& all,
                  const std::string& name) {
  const auto at = all.find(name);
  return at == all.end() ? "none" : at->second;
}

// The model; nothing if the claimed text is not one.
std::optional<ModelConfig> model_of(const Training& t) {
  auto model = parse_model_config(t.model);
  if (!model) return {};
  return std::move(*model);
}

// "BF16: products, attention; F32: softmax, ..."
std::string precision_text(const std::map<std::string, std::string>& found) {
  std::string out, last;
  for (const auto& [what, unused] : precision_plan({})) {
    const auto at = found.find(what);
    if (at == found.end()) continue;
    const bool same = at->second == last;
    if (!out.empty()) out += same ? ", " : "; ";
    if (!same) out += at->second + ": ";
    out += what;
    last = at->second;
  }
  return out;
}

// One line for each distinct route of clustered layers.
void add_clustered(const ModelConfig& m, Lines& line) {
  std::map<std::string, std::vector<int64_t>> layers;
  for (int64_t i = 0; !m.routes.empty() && i < m.layers; ++i) {
    const LayerRoute route = of_layer(m.routes, i);
    if (route.top > 0) layers[to_string(route)].push_back(i);
  }
  for (const auto& [route, numbers] : layers) {
    line("clustered", fmt::format("{} within the step: layers {}", route,
                                  fmt::join(numbers, ", ")));
  }
}

// One line for each slot, forward and then back.
void add_slots(const std::vector<Training::Work>& slots, Lines& line) {
  const auto bytes = [](int64_t n) {
    return n < 1000 ? fmt::format("{} ", n) : with_unit(static_cast<double>(n));
  };
  std::string_view name = "forward";
  for (const Training::Work& s : slots) {
    line(name,
         fmt::format("{:<13} {} FLOP; {}B of inputs, {}B of parameters, {}B of "
                     "outputs, {}B kept",
                     s.slot, s.flops ? with_unit(*s.flops) : "the batch's",
                     bytes(s.inputs), bytes(s.parameters), bytes(s.outputs),
                     bytes(s.kept)));
    name = "";
  }
  name = "back";
  for (const Training::Work& s : slots) {
    line(name,
         fmt::format("{:<13} {} FLOP; {}B read, {}B written", s.slot,
                     s.flops_back ? with_unit(*s.flops_back) : "the batch's",
                     bytes(s.read_back), bytes(s.written_back)));
    name = "";
  }
}

std::string mesh_text(const Training& t,
                      const std::optional<ModelConfig>& model) {
  const auto mesh = parse_mesh(t.mesh);
  if (!mesh) return t.mesh;
  std::string heads;
  if (model && mesh->has("head")) {
    heads = fmt::format(" and {} of {} heads",
                        model->heads / mesh->size("head"), model->heads);
  }
  const int64_t rows = t.rows / mesh->size("data");
  if (t.exchange && t.exchange->kind != "gather") {
    return fmt::format("{}: a part of the tokens of {} rows{} on each device",
                       t.mesh, rows, heads);
  }
  return fmt::format("{}: {} rows of {} tokens{} on each device", t.mesh, rows,
                     t.tokens / mesh->size("seq"), heads);
}

std::string exchange_text(const Training::Exchange& e) {
  std::string out = fmt::format("{}, balance {}", e.kind, e.balance);
  if (!e.work.empty()) out += fmt::format(", work {}", e.work);
  if (!e.evenness.empty()) out += fmt::format(", evenness {}", e.evenness);
  if (!e.ceilings.empty()) out += fmt::format(", ceilings '{}'", e.ceilings);
  return out;
}

}  // namespace

void add_model(const Training& t, Lines& line) {
  const std::optional<ModelConfig> model = model_of(t);
  line("model",
       fmt::format("{}{} parameters; spec {}: attention by {}",
                   model ? fmt::format("{} layers, ", model->layers) : "",
                   t.parameters, t.spec, named(t.slots, "attention")));
  line("precision", precision_text(t.precision));
  if (model) add_clustered(*model, line);
  add_slots(t.work, line);
  if (!t.mesh.empty()) line("mesh", mesh_text(t, model));
  if (t.exchange) line("exchange", exchange_text(*t.exchange));
}

void add_program(const Receipt& r, Lines& line) {
  line("program",
       r.plugin ? fmt::format("{} on {}: {} in {:.0f} ms", r.training.program,
                              r.plugin->device,
                              r.compiles > 0 ? "compiled" : "found on disk",
                              r.compile_ms)
                : r.training.program);
}

void add_steps(const Training& t, Lines& line) {
  line("trained",
       fmt::format("{} tokens in {:.1f} s; {} score tiles run, {} planned; {} "
                   "FLOP of attention",
                   t.counted, t.seconds, t.tiles_run, t.tiles_planned,
                   with_unit(t.attention_flops)));
  if (!t.exchange) return;
  const Training::Exchange& e = *t.exchange;
  line("exchange",
       fmt::format("{}B sent by attention along seq, where gathering sends "
                   "{}B; the busiest device has {:.2f} of the mean of tiles",
                   with_unit(static_cast<double>(e.sent)),
                   with_unit(static_cast<double>(e.all_gather)),
                   e.tiles_max_over_mean));
}

void add_training(const Receipt& r, Lines& line) {
  const Training& t = r.training;
  add_model(t, line);
  line("config", t.model);
  line("rows", fmt::format("'{}', {} of {} tokens a step", r.inputs.file,
                           t.rows, t.tokens));
  line("start", t.start.empty() ? fmt::format("seed {}", r.inputs.seed)
                                : "'" + t.start + "'");
  add_program(r, line);
  line("steps", fmt::format("{} to {}", t.first_step, t.steps));
  if (!t.losses.empty()) {
    line("loss",
         fmt::format("{:.4f} to {:.4f}", t.losses.front(), t.losses.back()));
  }
  add_steps(t, line);
}

}  // namespace tessera::receipt
