// tests/resident_run.cc: puts arrays, runs, fetches results, compares bits.
#include "tests/resident_run.h"

#include "lanes/host_residents.h"

namespace tessera::testing {

std::optional<std::string> resident_fault(lanes::LaneWork& work,
                                          const Batch& batch,
                                          AttentionArrays& arrays) {
  const auto before = arrays.bits();
  arrays.clear_outputs();
  const ForwardTensors t = arrays.forward(true);
  const Gradients back = arrays.gradients();
  AttentionCall call;
  call.shape = arrays.c.shape;
  call.dtype = arrays.c.dtype;
  lanes::HostResidents host(work, batch.plan(), call);
  lanes::ResidentWork* const own = work.residents();
  lanes::ResidentWork& there = own ? *own : host;

  auto q = there.put(t.q, true);
  auto k = there.put(t.k, false);
  auto v = there.put(t.v, false);
  auto dout = there.put(back.dout, true);
  for (const auto* put : {&q, &k, &v, &dout}) {
    if (!*put) return put->error().message;
  }
  lanes::ResidentForward forward;
  forward.q = q->get();
  forward.k = k->get();
  forward.v = v->get();
  forward.sink_logits = t.sink_logits;
  forward.lse = t.lse;
  if (auto ran = there.forward(forward, nullptr); !ran) {
    return ran.error().message;
  }
  lanes::ResidentBackward backward;
  backward.q = forward.q;
  backward.k = forward.k;
  backward.v = forward.v;
  backward.sink_logits = forward.sink_logits;
  backward.out = forward.out.get();
  backward.dout = dout->get();
  backward.lse = t.lse;
  backward.dlse = back.dlse;
  backward.dsink_logits = back.dsink_logits;
  if (auto ran = there.backward(backward, nullptr); !ran) {
    return ran.error().message;
  }
  const struct {
    const lanes::ResidentPtr& from;
    bool queries;
    MutableTensorView to;
  } results[] = {{forward.out, true, t.out},
                 {backward.dq, true, back.dq},
                 {backward.dk, false, back.dk},
                 {backward.dv, false, back.dv}};
  for (const auto& r : results) {
    if (auto e = there.fetch(*r.from, r.queries, r.to); !e) {
      return e.error().message;
    }
  }
  if (auto fault = arrays.spilled()) return fault;
  if (arrays.bits() != before) {
    return "arrays that stay give other bits than arrays of the host";
  }
  return {};
}

}  // namespace tessera::testing
