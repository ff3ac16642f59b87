// receipt/routing.cc: counts of given picks and of their unions.
#include "receipt/routing.h"

#include <algorithm>

#include "plan/batch_state.h"
#include "plan/pick_unions.h"
#include "tessera/contract.h"

namespace tessera::receipt {

namespace {

Receipt::Routing routed(const RouteResult& r, bool given) {
  const RouteCounts& c = r.counts;
  return {given,
          r.settings,
          r.heads,
          c.picks,
          c.removed_invalid + c.removed_documents + c.removed_future,
          c.union_blocks,
          c.tile_rows,
          r.unions.widest,
          r.unions.capacity};
}

}  // namespace

std::optional<Receipt::Routing> routing_of(const Batch& of) {
  const Batch::State& batch = of.state();
  if (!batch.plan.meaning) return {};
  if (of.routing()) return routed(*of.routing(), batch.given_picks);
  const Request& request = batch.request;
  const int64_t block = mask::names_of(request).picks_block;
  const PickUnions unions = plan::plan_unions(batch.sweep.bound, block);
  const Picks& picks = *batch.facts.picks;
  const int64_t most = request.ceilings.max_union;
  Receipt::Routing out;
  out.given = true;
  out.settings.top = picks.k;
  out.settings.block = block;
  out.settings.query_tile = batch.plan.tile.q;
  out.settings.meaning = picks.meaning;
  out.heads = picks.heads;
  out.picks = std::count_if(unions.slots.begin(), unions.slots.end(),
                            [](int32_t slot) { return slot >= 0; });
  out.union_blocks = static_cast<int64_t>(unions.blocks.size());
  out.tile_rows = static_cast<int64_t>(unions.start.size()) - 1;
  out.widest_union = unions.widest;
  out.union_capacity =
      most > 0 ? most : bucket(std::max<int64_t>(unions.widest, 1));
  return out;
}

}  // namespace tessera::receipt
