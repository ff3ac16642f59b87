// cli/compile/receipt.cc: "compiled only": what was asked and what came of it.
#include "cli/compile/receipt.h"

#include <fmt/format.h>

#include <utility>

#include "base/dtype_word.h"
#include "receipt/digests.h"
#include "receipt/lowering.h"
#include "receipt/request_fields.h"
#include "run/features.h"
#include "run/lane_rules.h"
#include "run/receipt_parts.h"
#include "tessera/version.h"

namespace tessera::cli {

CompiledBy compiled_by(const CompileTarget& target,
                       const CompileReport& report) {
  CompiledBy by;
  by.target = target.target;
  by.plugin.file = report.plugin;
  by.plugin.api = report.api;
  by.plugin.platform = report.platform;
  by.plugin.device = target.target;
  by.compile_ms = report.compile_ms;
  by.machine = this_machine(false);
  by.machine.asked_plugins = true;
  by.machine.plugins = {{target.plugin, report.platform, 0}};
  return by;
}

Result<receipt::Receipt> compile_receipt(const KernelFlags& flags,
                                         const AskedKernel& asked,
                                         const CompiledBy& by) {
  const request::RequestFlags& given = flags.run.request;
  receipt::Receipt r;
  r.version = kVersion;
  r.lane.requested = "auto";
  r.lane.source = "default";
  r.lane.runtime_mode = "compiled only";
  r.request = receipt::request_text(asked.request);
  if (!given.plan) {
    // Facts are not read, but which there are counts.
    auto text = request::request_text(given);
    if (!text) return text.error();
    receipt::take_given(*text, r.request);
  }
  r.request.target = by.target;
  r.plan_file = given.plan.value_or("");
  r.facts_digest = receipt::facts_digest({});
  r.shape = {asked.shape, asked.shape.scale_or_default(),
             dtype_word(asked.kernel.call.dtype), "bhsd",
             asked.kernel.call.sink_logits};
  r.contract = asked.kernel.plan.key;
  r.lowering = receipt::lowering_of(asked.kernel.lowering, 0);
  r.backward = asked.kernel.call.backward;
  const char* const direction = r.backward ? "backward" : "forward";
  r.kernels[direction] = asked.kernel.contract.key;
  r.settings = {{"tile", asked.tile_by},
                {direction, fmt::format("{} tiles a pass: {}",
                                        asked.kernel.options.tiles_per_pass,
                                        asked.passes_by)}};
  r.parameters = {{"tiles_per_pass", asked.kernel.options.tiles_per_pass},
                  {"fetch_ahead", asked.kernel.options.fetch_ahead}};
  if (asked.kernel.options.page_steps > 0) {
    r.parameters["page_steps"] = asked.kernel.options.page_steps;
  }
  if (asked.kernel.query_chunk > 0) {
    r.parameters["query_chunk"] = asked.kernel.query_chunk;
  }
  if (r.backward) {
    r.parameters["dlse"] = asked.kernel.call.dlse;
  } else {
    r.parameters["row_sum_rounded"] =
        asked.kernel.options.row_sum == RowSum::rounded;
  }
  r.parameters["any_numbers"] = asked.kernel.options.numbers == Numbers::any;
  r.plugin = by.plugin;
  r.device = by.machine.cpu;
  r.compiles = 1;
  r.compile_ms = by.compile_ms;

  CallFeatures call = run::call_features(asked.kernel.call);
  call.compile_only = true;
  call.numbers = asked.kernel.options.numbers;
  const RequestFeatures features =
      features_of(asked.request, {}, asked.shape, call);
  auto choice = choose(features, {}, by.machine);
  if (!choice) choice = run::by_name(LaneId::mosaic, features, {}, by.machine);
  r.lane.chosen = to_string(choice->lane);
  r.lane.family = lane_family(choice->lane, by.plugin.platform);
  r.choice = run::receipt_choice(*choice);
  r.machine = run::receipt_machine(by.machine);
  receipt::seal(r);
  return r;
}

}  // namespace tessera::cli
