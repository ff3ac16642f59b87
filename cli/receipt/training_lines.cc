// cli/receipt/training_lines.cc: the lines of a training run.
#include "cli/receipt/lines.h"

namespace tessera::cli {
namespace {

std::string named(const std::map<std::string, std::string>& all,
                  const std::string& name) {
  const auto at = all.find(name);
  return at == all.end() ? "none" : at->second;
}

}  // namespace

void add_training(const receipt::Receipt& r, Lines& line) {
  const receipt::Receipt::Training& t = r.training;
  line("trained",
       fmt::format("{} parameters; spec {}: attention by {}, products in {}",
                   t.parameters, t.spec, named(t.slots, "attention"),
                   named(t.precision, "products")));
  line("model", t.model);
  if (!t.mesh.empty()) line("mesh", t.mesh);
  if (t.exchange) {
    line("exchange",
         fmt::format("{}, balance {}, {} bytes sent, {} by gathering",
                     t.exchange->kind, t.exchange->balance, t.exchange->sent,
                     t.exchange->all_gather));
  }
  line("rows", fmt::format("'{}', {} of {} tokens a step", r.inputs.file,
                           t.rows, t.tokens));
  line("start", t.start.empty() ? fmt::format("seed {}", r.inputs.seed)
                                : "'" + t.start + "'");
  line("steps",
       fmt::format("{} to {}, {} tokens", t.first_step, t.steps, t.counted));
  if (!t.losses.empty()) {
    line("loss",
         fmt::format("{:.4f} to {:.4f}", t.losses.front(), t.losses.back()));
  }
  line("tiles",
       fmt::format("{} run, {} planned", t.tiles_run, t.tiles_planned));
  line("program", t.program);
}

}  // namespace tessera::cli
