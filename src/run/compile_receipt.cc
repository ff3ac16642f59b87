// run/compile_receipt.cc: fills the receipt of a kernel that was only compiled.
#include "run/compile_receipt.h"

#include <fmt/format.h>

#include "base/dtype_word.h"
#include "receipt/digests.h"
#include "receipt/lowering.h"
#include "receipt/request_fields.h"
#include "run/features.h"
#include "run/lane_rules.h"
#include "run/receipt_parts.h"
#include "tessera/version.h"

namespace tessera::run {
namespace {

void add_asked(const CompiledKernel& c, receipt::Receipt& r) {
  const AttentionCall& call = c.kernel.call;
  r.request = receipt::request_text(c.request);
  receipt::take_given(c.given, r.request);
  r.plan_file = c.plan_file;
  // A compile reads no facts.
  r.facts_digest = receipt::facts_digest({});
  r.shape = {call.shape, call.shape.scale_or_default(), dtype_word(call.dtype),
             "bhsd", call.sink_logits};
  r.backward = call.backward;
}

void add_kernel(const CompiledKernel& c, receipt::Receipt& r) {
  const MosaicKernel& k = c.kernel;
  r.contract = k.plan.key;
  r.lowering = receipt::lowering_of(k.lowering, 0);
  const char* const direction = r.backward ? "backward" : "forward";
  r.kernels[direction] = k.contract.key;
  r.settings = {
      {"tile", c.tile_by},
      {direction, fmt::format("{} tiles a pass: {}", k.options.tiles_per_pass,
                              c.passes_by)}};
  r.parameters = {{"tiles_per_pass", k.options.tiles_per_pass},
                  {"fetch_ahead", k.options.fetch_ahead}};
  if (k.options.page_steps > 0) {
    r.parameters["page_steps"] = k.options.page_steps;
  }
  if (k.query_chunk > 0) r.parameters["query_chunk"] = k.query_chunk;
  if (r.backward) {
    r.parameters["dlse"] = k.call.dlse;
  } else {
    r.parameters["row_sum_rounded"] = k.options.row_sum == RowSum::rounded;
  }
  r.parameters["any_numbers"] = k.options.numbers == Numbers::any;
}

void add_choice(const CompiledKernel& c, const CompiledBy& by,
                receipt::Receipt& r) {
  CallFeatures call = call_features(c.kernel.call);
  call.compile_only = true;
  call.numbers = c.kernel.options.numbers;
  const RequestFeatures features =
      features_of(c.request, {}, c.kernel.call.shape, call);
  auto choice = choose(features, {}, by.machine);
  if (!choice) choice = by_name(LaneId::mosaic, features, {}, by.machine);
  r.lane.chosen = to_string(choice->lane);
  r.lane.family = lane_family(choice->lane, by.plugin.platform);
  r.choice = receipt_choice(*choice);
  r.machine = receipt_machine(by.machine);
}

}  // namespace

receipt::Receipt compile_receipt(const CompiledKernel& compiled,
                                 const CompiledBy& by) {
  receipt::Receipt r;
  r.version = kVersion;
  r.lane.requested = "auto";
  r.lane.source = "default";
  r.lane.runtime_mode = "compiled only";
  add_asked(compiled, r);
  r.request.target = by.target;
  add_kernel(compiled, r);
  r.plugin = by.plugin;
  r.device = by.machine.cpu;
  r.compiles = 1;
  r.compile_ms = by.compile_ms;
  add_choice(compiled, by, r);
  receipt::seal(r);
  return r;
}

}  // namespace tessera::run
