// fit/budget_json.cc: a budget as JSON.
#include "fit/budget_json.h"

#include "tessera/fit.h"

namespace tessera {
namespace {

using nlohmann::json;

json parts_json(const std::vector<MemoryPart>& parts) {
  json out = json::array();
  for (const MemoryPart& p : parts) {
    out.push_back({{"name", p.name},
                   {"kind", to_string(p.kind)},
                   {"bytes", p.bytes},
                   {"padding", p.padding},
                   {"least", p.least},
                   {"residual", p.residual},
                   {"core", p.core}});
  }
  return out;
}

json pass_json(const PassMemory& pass) {
  json out = {{"arguments", parts_json(pass.arguments)},
              {"outputs", parts_json(pass.outputs)},
              {"scratch", parts_json(pass.scratch)},
              {"bytes",
               {{"argument", pass.argument_bytes()},
                {"output", pass.output_bytes()},
                {"scratch", pass.scratch_bytes()},
                {"core", pass.core_bytes()},
                {"total", pass.total()},
                {"least", pass.least()}}}};
  if (pass.vector_memory) {
    out["vector_memory"] = fit::vector_memory_json(*pass.vector_memory);
  }
  return out;
}

}  // namespace

json fit::vector_memory_json(const VectorMemory& memory) {
  return {{"scratch", memory.scratch},
          {"room", memory.room},
          {"limit", memory.limit}};
}

std::string budget_json(const Budget& b, std::span<const Remedy> remedies) {
  json would_fit = json::array();
  for (const Remedy& r : remedies) {
    would_fit.push_back({{"change", r.change},
                         {"found", r.found},
                         {"fits", r.fits},
                         {"needed", r.needed}});
  }
  json out = {{"chip",
               {{"name", b.chip.name},
                {"hbm", b.chip.hbm},
                {"devices", b.chip.devices},
                {"room", b.chip.room}}},
              {"forward", pass_json(b.forward)},
              {"residuals", b.residuals()},
              {"recompute_saves", b.recompute_saves()},
              {"program_room", kProgramRoom},
              {"needed", b.needed()},
              {"fits", b.fits()},
              {"beyond_room", b.beyond_room()},
              {"would_fit", std::move(would_fit)}};
  if (b.backward) out["backward"] = pass_json(*b.backward);
  if (b.sinks) out["sinks"] = pass_json(*b.sinks);
  return out.dump();
}

}  // namespace tessera
