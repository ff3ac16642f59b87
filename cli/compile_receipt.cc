// cli/compile_receipt.cc: "compiled only": what was asked and what came of it.
#include "cli/compile_receipt.h"

#include <utility>

#include "cli/spec.h"
#include "dispatch/can.h"
#include "dispatch/told.h"
#include "dispatch/words.h"
#include "receipt/digests.h"
#include "receipt/machine.h"
#include "tessera/version.h"

namespace tessera::cli {

Result<Receipt> compile_receipt(const KernelFlags& flags,
                                const AskedKernel& asked,
                                const CompiledBy& by) {
  const RequestFlags& given = flags.run.request;
  RequestOptions words;
  if (given.spec) {
    auto spec = load_spec(*given.spec);
    if (!spec) return spec.error();
    words = std::move(*spec);
  }
  Receipt r;
  r.version = kVersion;
  r.lane.requested = "auto";
  r.lane.source = "default";
  r.lane.runtime_mode = "compiled only";
  r.request = tell(asked.request);
  r.request.facts["target"] = by.target;
  // Facts are not read, but which there are counts.
  const auto add = [&](const char* name, const std::optional<std::string>& flag,
                       const std::optional<std::string>& in_spec) {
    if (flag || in_spec) r.request.facts[name] = flag ? *flag : *in_spec;
  };
  add("docs", given.docs, words.docs);
  add("q_docs", given.q_docs, words.q_docs);
  r.request.valid = given.valid.empty() ? words.valid : given.valid;
  r.request.plan_file = given.plan.value_or("");
  r.request.facts_digest = facts_digest({});
  r.shape = {asked.shape, asked.shape.scale_or_default(), "bf16", "bhsd",
             false};
  r.contract = asked.kernel.plan.key;
  r.kernels["forward"] = asked.kernel.contract.key;
  r.parameters = {{"tiles_per_pass", asked.kernel.options.tiles_per_pass},
                  {"fetch_ahead", asked.kernel.options.fetch_ahead}};
  r.plugin = by.plugin;
  r.device = cpu_model();
  r.compiles = 1;
  r.compile_ms = by.compile_ms;

  CallFeatures call;
  call.dtype = Dtype::bf16;
  call.compile_only = true;
  const RequestFeatures features =
      features_of(asked.request, {}, asked.shape, call);
  auto choice = choose(features, {}, by.machine);
  if (!choice) choice = by_name(LaneId::mosaic, features, by.machine);
  r.lane.chosen = to_string(choice->lane);
  r.lane.family = lane_family(choice->lane, by.plugin.platform);
  r.choice = tell(*choice);
  r.machine = tell(by.machine);
  return r;
}

}  // namespace tessera::cli
