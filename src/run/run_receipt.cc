// run/run_receipt.cc: the receipt of the latest passes of a prepared batch.
#include <algorithm>

#include "base/fail.h"
#include "receipt/digests.h"
#include "receipt/routing.h"
#include "receipt/sink_telemetry.h"
#include "run/receipt_parts.h"
#include "run/session_state.h"

namespace tessera::run {
namespace {

bool lie_alike(const TensorView& a, const TensorView& b) {
  return a.batch_stride == b.batch_stride && a.head_stride == b.head_stride &&
         a.token_stride == b.token_stride;
}

// "bhsd" or "bshd" if all arrays have that layout, else "strided".
std::string layout_of(const ForwardTensors& f, const Gradients* g) {
  std::vector<TensorView> arrays = {f.q, f.k, f.v, as_input(f.out)};
  if (g) {
    arrays.insert(arrays.end(),
                  {g->dout, as_input(g->dq), as_input(g->dk), as_input(g->dv)});
  }
  const auto all = [&](auto layout) {
    return std::ranges::all_of(arrays, [&](const TensorView& t) {
      return lie_alike(
          t, layout(t.data, t.dtype, t.batch, t.heads, t.tokens, t.dim));
    });
  };
  if (all(TensorView::bhsd)) return "bhsd";
  return all(TensorView::bshd) ? "bshd" : "strided";
}

std::map<std::string, std::string> digests_of(const ForwardTensors& f,
                                              const Gradients* g) {
  std::map<std::string, std::string> out = {{"q", receipt::array_digest(f.q)},
                                            {"k", receipt::array_digest(f.k)},
                                            {"v", receipt::array_digest(f.v)}};
  if (f.sink_logits) out["sink_logits"] = receipt::array_digest(*f.sink_logits);
  if (!g) return out;
  out["dout"] = receipt::array_digest(g->dout);
  if (!g->dlse.empty()) out["dlse"] = receipt::array_digest(g->dlse);
  return out;
}

Result<void> check_sinks(const Prepared::State& p, const SinkTelemetry* sinks) {
  if ((sinks != nullptr) != p.call.sink_telemetry) {
    return invalid("receipt",
                   "sink telemetry must be given for a call with "
                   "sink_telemetry, and for no other, found {}",
                   sinks ? "some" : "none");
  }
  if (!sinks) return {};
  const Request& r = p.batch.request();
  const int64_t heads = p.call.shape.heads;
  const int64_t queries = r.batch * heads * r.q_len;
  if (static_cast<int64_t>(sinks->mass.size()) != queries ||
      static_cast<int64_t>(sinks->entropy.size()) != queries) {
    return invalid("receipt",
                   "sink telemetry must be of this batch's {} queries of all "
                   "heads, found {} and {}",
                   queries, sinks->mass.size(), sinks->entropy.size());
  }
  const int64_t most = receipt::max_sink_documents(heads);
  if (static_cast<int64_t>(sinks->documents.size()) <= most) return {};
  return over_limit("receipt",
                    "sink telemetry of {} heads must be of at most {} "
                    "documents, found {}",
                    heads, most, sinks->documents.size());
}

Result<void> check(const Prepared::State& p, const Saved& saved,
                   const Gradients* gradients, const SinkTelemetry* sinks) {
  if (!p.work) {
    return invalid("receipt",
                   "a batch must be prepared, found one that failed");
  }
  if (saved.of != p.id) {
    return invalid(
        "receipt",
        "a receipt must be of this batch's own passes, found another's arrays");
  }
  if ((gradients != nullptr) != p.call.backward) {
    return invalid("receipt",
                   "gradients must be there for a call with a backward pass "
                   "and only there, found {}",
                   gradients ? "some" : "none");
  }
  if (gradients && !p.went_back) {
    return invalid("receipt", "a backward pass must have run, found none");
  }
  return check_sinks(p, sinks);
}

}  // namespace

Result<receipt::Receipt> make_receipt(const Prepared& prepared,
                                      const Saved& saved,
                                      const Gradients* gradients,
                                      const SinkTelemetry* sinks) {
  const Prepared::State& p = prepared.state();
  const SessionOptions& options = p.session->options;
  if (auto e = check(p, saved, gradients, sinks); !e) return e.error();
  auto receipt = start_receipt({.batch = p.batch,
                                .shape = p.call.shape,
                                .dtype = p.call.dtype,
                                .sink_logits = p.call.sink_logits,
                                .backward = p.call.backward,
                                .lane = options.lane,
                                .fallback = options.fallback});
  if (!receipt) return receipt;
  receipt->lane.source = options.lane ? "caller" : "default";
  receipt->lane.chosen = to_string(p.choice.lane);
  receipt->choice = receipt_choice(p.choice);
  receipt->machine = receipt_machine(p.machine);
  receipt->shape.layout = layout_of(saved.tensors, gradients);
  if (options.input_digests) {
    receipt->inputs.digests = digests_of(saved.tensors, gradients);
  }
  receipt->routing = receipt::routing_of(p.batch, p.call);
  receipt->route_ms = p.batch.route_ms();
  receipt->plan_ms = p.batch.plan_ms();
  add_what_ran(prepared, *receipt);
  if (sinks) receipt->sink_telemetry = receipt::sink_telemetry_of(*sinks);
  receipt->output_digest = receipt::outputs_digest(saved.tensors, gradients);
  return receipt;
}

}  // namespace tessera::run
