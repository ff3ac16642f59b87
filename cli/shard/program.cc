// cli/shard/program.cc: the budget and the schedule of a mesh's program.
#include "cli/shard/program.h"

#include <fmt/ranges.h>

#include <cmath>
#include <utility>

#include "cli/fit/mesh.h"
#include "picture/labels.h"
#include "schedule/chip.h"
#include "schedule/compile_dump.h"
#include "schedule/program.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using picture::with_commas;

Result<void> compile(const MeshFitCall& asked, ProgramReport& out) {
  auto text = program_text(asked, out.backward);
  if (!text) return text.error();
  schedule::DumpOptions options;
  options.target = asked.chip;
  auto made = schedule::compile_and_dump(*text, options);
  if (!made) return made.error();
  (out.backward ? out.fit.backward : out.fit.forward) = made->memory;
  schedule::ScheduleOptions of;
  of.target = asked.chip;
  auto schedule = schedule::make_schedule(std::move(made->dump), of);
  if (!schedule) return schedule.error();
  out.collectives = std::move(schedule->collectives);
  out.target = asked.chip;
  return {};
}

json collective_json(const schedule::Collective& c) {
  return {{"name", c.name},
          {"op", c.opcode},
          {"bytes", c.bytes},
          {"asynchronous", c.asynchronous},
          {"ops_between", c.ops_between},
          {"cycles_between", c.cycles_between},
          {"longest", c.longest.empty() ? json() : json(c.longest)},
          {"kernels", c.kernels}};
}

std::string beside(const schedule::Collective& c) {
  if (!c.asynchronous) return "nothing runs beside it";
  if (c.ops_between == 0) return "its end follows its start";
  std::string out = fmt::format(
      "{} ops beside it, {} cycles at least, most of them {}", c.ops_between,
      with_commas(std::llround(c.cycles_between)), c.longest);
  if (!c.kernels.empty()) {
    out += fmt::format("; {}", fmt::join(c.kernels, ", "));
  }
  return out;
}

}  // namespace

Result<ProgramReport> report_program(const MeshFitCall& asked,
                                     bool with_compiler) {
  auto fit = fit_on_mesh(asked);
  if (!fit) return fit.error();
  ProgramReport out;
  out.backward = asked.call.backward;
  out.fit = std::move(*fit);
  if (with_compiler && out.fit.budget.fits()) {
    if (auto e = compile(asked, out); !e) return e.error();
  }
  return out;
}

json collectives_json(const std::vector<schedule::Collective>& collectives) {
  json out = json::array();
  for (const schedule::Collective& c : collectives) {
    out.push_back(collective_json(c));
  }
  return out;
}

json program_json(const ProgramReport& r) {
  json out = {{"pass", r.backward ? "backward" : "forward"},
              {"target", r.target.empty() ? json() : json(r.target)},
              {"fit", fit_json(r.fit)}};
  if (r.target.empty()) return out;
  schedule::add_known(out, r.target);
  out["collectives"] = collectives_json(r.collectives);
  return out;
}

std::string report_text(const ProgramReport& r) {
  std::string out = "\non each chip\n" + fit_text(r.fit);
  if (r.target.empty()) return out;
  out += fmt::format("{:<11} by libtpu, {} pass for {}; cycles predicted, {}\n",
                     "schedule", r.backward ? "backward" : "forward", r.target,
                     schedule::known_words(r.target));
  int64_t bytes = 0;
  for (const schedule::Collective& c : r.collectives) {
    bytes += c.bytes;
    out += fmt::format("  {:<29} {:>14} bytes: {}\n", c.name,
                       with_commas(c.bytes), beside(c));
  }
  return out + fmt::format("{:<11} {} bytes of a device in {} collectives\n",
                           "travel", with_commas(bytes), r.collectives.size());
}

}  // namespace tessera::cli
