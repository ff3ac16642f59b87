// run/passes.cc: prepares once, then runs forward, telemetry and backward.
#include "run/passes.h"

#include <utility>

#include "base/fail.h"
#include "receipt/sink_telemetry.h"
#include "run/session_state.h"

namespace tessera::run {

Result<void> check_first_keys(int64_t first_keys, const Batch& batch,
                              int64_t heads) {
  if (first_keys == 0) return {};
  if (first_keys < 0 || first_keys > kMaxTokens) {
    return invalid("run", "first_keys must be 1 to {}, found {}", kMaxTokens,
                   first_keys);
  }
  // There are at most as many documents as runs of equal ids.
  const Facts& facts = batch.facts();
  const auto& ids = facts.q_doc_ids ? facts.q_doc_ids : facts.doc_ids;
  int64_t documents = batch.request().batch;
  for (size_t i = 1; ids && i < ids->size(); ++i) {
    if ((*ids)[i] != (*ids)[i - 1]) ++documents;
  }
  const int64_t most = receipt::max_sink_documents(heads);
  if (documents <= most) return {};
  return over_limit("run",
                    "sink telemetry of {} heads must be of at most {} batch "
                    "rows and runs of document ids, found {}",
                    heads, most, documents);
}

Result<Passes> run_passes(const Session& session, const RunCall& call) {
  auto counted =
      check_first_keys(call.first_keys, call.batch, call.shape.heads);
  if (!counted) return counted.error();
  auto ready = session.prepare(call.batch, call_of(call));
  if (!ready) return ready.error();
  auto saved = ready->forward(call.forward, call.stop);
  if (!saved) return saved.error();
  std::optional<SinkTelemetry> sinks;
  if (call.first_keys != 0) {
    auto told = ready->sink_telemetry(*saved, call.first_keys, call.stop);
    if (!told) return told.error();
    sinks = std::move(*told);
  }
  if (call.gradients) {
    auto e = ready->backward(*saved, *call.gradients, call.stop);
    if (!e) return e.error();
  }
  return Passes{std::move(*ready), *saved, std::move(sinks)};
}

Result<receipt::Receipt> receipt_of(const Passes& passes, const RunCall& call) {
  return make_receipt(passes.ready, passes.saved,
                      call.gradients ? &*call.gradients : nullptr,
                      passes.sinks ? &*passes.sinks : nullptr);
}

}  // namespace tessera::run
