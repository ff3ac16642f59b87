// run/gate_per_step.cc: prepares two steps, counts compiles of the second.
#include "run/gate_per_step.h"

#include <algorithm>
#include <utility>

#include "base/integers.h"

namespace tessera::run {

Result<std::vector<OwnedBatch>> two_steps(const GateCase& c) {
  std::vector<OwnedBatch> out;
  if (c.doc_ids.empty()) return out;
  // These ceilings give all batches one contract, whatever their documents.
  Request request = c.request;
  const int64_t rows = ceil_div(request.q_len, request.tile.q);
  const int64_t columns = ceil_div(request.kv_len, request.tile.kv);
  request.ceilings.max_steps = rows * columns;
  request.ceilings.max_width = std::max(rows, columns);
  const auto tokens = static_cast<int64_t>(c.doc_ids.size());
  const int64_t documents = c.doc_ids.back() + 1;
  out.reserve(2);
  for (const int64_t moved : {int64_t{0}, tokens / (2 * documents)}) {
    OwnedFacts facts;
    auto& ids = facts.doc_ids.emplace();
    ids.reserve(c.doc_ids.size());
    for (int64_t i = 0; i < tokens; ++i) {
      ids.push_back(static_cast<int32_t>((i + moved) * documents / tokens));
    }
    auto batch = OwnedBatch::make(request, std::move(facts));
    if (!batch) return batch.error();
    out.push_back(std::move(*batch));
  }
  return out;
}

Result<bool> needs_shape_per_step(const GateCase& c, const Session& session) {
  auto steps = two_steps(c);
  if (!steps) return steps.error();
  Counters did;
  for (const OwnedBatch& batch : *steps) {
    auto ready = session.prepare(batch, attention_call(c));
    if (!ready) return ready.error();
    did = ready->counters();
  }
  // A program that is read from the disk cache is another program too.
  return steps->size() == 2 && did.compiles + did.disk_hits > 0;
}

}  // namespace tessera::run
