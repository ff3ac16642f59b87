// cli/run/receipt.cc: the fields of a run's receipt that come from its flags.
#include "cli/run/receipt.h"

#include <utility>

#include "receipt/digests.h"

namespace tessera::cli {
namespace {

receipt::Receipt::Inputs inputs_of(const RunFlags& flags, const RunOptions& o) {
  const request::AttentionData& d = o.data;
  receipt::Receipt::Inputs out;
  out.seed = o.seed;
  out.file = flags.inputs.value_or("");
  const auto add = [&](const char* name, std::string digest) {
    out.digests[name] = std::move(digest);
    if (!o.inputs || !o.inputs->has(name)) out.drawn.push_back(name);
  };
  add("q", receipt::array_digest(d.q.view()));
  add("k", receipt::array_digest(d.k.view()));
  add("v", receipt::array_digest(d.v.view()));
  if (d.sink_logits) add("sink_logits", receipt::array_digest(*d.sink_logits));
  if (!d.backward) return out;
  add("dout", receipt::array_digest(d.dout.view()));
  if (!d.dlse.empty()) add("dlse", receipt::array_digest(d.dlse));
  return out;
}

}  // namespace

void add_given(const RunFlags& flags, const RunOptions& o,
               const request::Planned& planned, receipt::Receipt& r) {
  r.lane.source = flags.lane ? "flag" : "default";
  receipt::take_given(planned.given, r.request);
  r.plan_file = flags.request.plan.value_or("");
  r.shape.layout = to_string(o.data.layout);
  r.inputs = inputs_of(flags, o);
  if (r.artifact) {
    r.artifact->file = flags.artifact.value_or("");
    r.artifact->shapes_file = flags.shapes.value_or("");
  }
}

}  // namespace tessera::cli
