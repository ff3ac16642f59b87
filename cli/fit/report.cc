// cli/fit/report.cc: a budget as a table and as JSON.
#include "cli/fit/report.h"

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/warnings.h"
#include "fit/parts.h"
#include "picture/labels.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using picture::with_commas;

double gib(int64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 30);
}

json stats_json(const pjrt::MemoryStats& m) {
  return {{"argument", m.argument},
          {"output", m.output},
          {"temporary", m.temporary},
          {"total", m.argument + m.output + m.temporary},
          {"code", m.code}};
}

std::string parts_text(std::string_view section,
                       const std::vector<MemoryPart>& parts) {
  std::string out;
  for (const MemoryPart& p : parts) {
    const char* note = p.residual ? "residual" : p.core ? "or in the core" : "";
    out += fmt::format("  {:<9} {:<24} {:<8} {:>18} {:>14} {}\n",
                       out.empty() ? section : "", p.name, to_string(p.kind),
                       with_commas(p.bytes), with_commas(p.padding), note);
  }
  return out;
}

std::string pass_text(std::string_view title, const PassMemory& pass,
                      const std::optional<pjrt::MemoryStats>& compiled) {
  std::string out = fmt::format("{}\n", title);
  out += fmt::format("  {:<9} {:<24} {:<8} {:>18} {:>14}\n", "", "part", "kind",
                     "bytes", "of padding");
  out += parts_text("arguments", pass.arguments);
  out += parts_text("outputs", pass.outputs);
  out += parts_text("scratch", pass.scratch);
  const auto line = [&](std::string_view name, int64_t ours, int64_t theirs) {
    out += fmt::format(
        "  {:<43} {:>18}{}\n", name, with_commas(ours),
        compiled ? fmt::format(" {:>18} compiled", with_commas(theirs)) : "");
  };
  const pjrt::MemoryStats m = compiled.value_or(pjrt::MemoryStats{});
  line("all arguments", pass.argument_bytes(), m.argument);
  line("all outputs", pass.output_bytes(), m.output);
  line("all scratch", pass.scratch_bytes(), m.temporary);
  line("total", pass.total(), m.argument + m.output + m.temporary);
  if (const auto& v = pass.vector_memory) {
    out += fmt::format("  {:<43} {:>18} of {}\n", "vector memory",
                       with_commas(v->scratch), with_commas(v->room));
  }
  if (compiled) line("code, of the room for it", kProgramRoom, m.code);
  return out;
}

}  // namespace

json fit_json(const FitReport& r) {
  json out = json::parse(budget_json(r.budget, r.remedies));
  out["lane"] = to_string(r.lane);
  out["method"] = r.lane == LaneId::xla ? json(to_string(r.method)) : json();
  out["tile"] = {r.tile.q, r.tile.kv};
  if (r.forward) out["forward"]["compiled"] = stats_json(*r.forward);
  if (r.backward) out["backward"]["compiled"] = stats_json(*r.backward);
  if (r.sinks) out["sinks"]["compiled"] = stats_json(*r.sinks);
  return out;
}

std::span<const JsonField> fit_json_fields() {
  static constexpr JsonField kFields[] = {
      {"lane, method, tile", "method: null where the lane has none"},
      {"chip.{name,hbm,devices,room}"},
      {"{forward,backward,sinks}.{arguments,outputs,scratch}[]."
       "{name,kind,bytes,padding,least,residual,core}",
       "bytes with padding; least: what lies in HBM whatever the compiler "
       "does; residual: kept for backward; core: a core's memory may take it"},
      {"{forward,backward,sinks}.bytes.{argument,output,scratch,core,total,"
       "least}"},
      {"{forward,backward,sinks}.vector_memory.{scratch,room,limit}",
       "lane mosaic: bytes of the kernel's scratch, which are the compiler's "
       "own figure; room: the most that it may have; limit: of it and of what "
       "the compiler spills beside, which only the compiler knows"},
      {"{forward,backward,sinks}.compiled."
       "{argument,output,temporary,total,code}",
       "with --compile: what the compiler says"},
      {"residuals", "bytes from forward to backward"},
      {"recompute_saves",
       "bytes of every other layer that a caller saves if it computes blocks "
       "again; of this call nothing"},
      {"program_room", "bytes for a program's code"},
      {"needed, fits, beyond_room", "beyond_room: no compiler makes it fit"},
      {"would_fit[].{change,found,fits,needed}",
       "one change alone that makes it fit"},
  };
  return kFields;
}

std::string fit_text(const FitReport& r) {
  const Budget& b = r.budget;
  std::string out = fmt::format(
      "{:<11} {}{} on {}, tile {}x{}\n"
      "{:<11} {:.2f} GiB of a device, of {} a chip with {:.0f} GiB\n",
      "lane", to_string(r.lane),
      r.lane == LaneId::xla ? fmt::format(", {}", to_string(r.method)) : "",
      b.chip.name, r.tile.q, r.tile.kv, "room", gib(b.chip.room),
      b.chip.devices, gib(b.chip.hbm));
  out += pass_text("forward", b.forward, r.forward);
  if (b.backward) out += pass_text("backward", *b.backward, r.backward);
  if (b.sinks) out += pass_text("sinks", *b.sinks, r.sinks);
  if (b.backward) {
    out += fmt::format("{:<11} {} bytes from forward to backward\n",
                       "residuals", with_commas(b.residuals()));
    out += fmt::format(
        "{:<11} saves {} bytes of every other layer, of this call nothing\n",
        "recompute", with_commas(b.recompute_saves()));
  }
  out += fmt::format(
      "{:<11} {} bytes with {} for code: {:.2f}% of the room\n", "needed",
      with_commas(b.needed()), with_commas(kProgramRoom),
      100 * static_cast<double>(b.needed()) / static_cast<double>(b.chip.room));
  for (const Remedy& remedy : r.remedies) {
    out += fmt::format("{:<11} {} {} for {}\n", "would fit", remedy.change,
                       remedy.fits, remedy.found);
  }
  return out;
}

int fit_code(const FitReport& r) {
  if (r.budget.fits()) return kOk;
  print_error(fmt::format("tessera: {}\n",
                          fit::too_large(r.budget, r.remedies).message));
  return kFailed;
}

}  // namespace tessera::cli
