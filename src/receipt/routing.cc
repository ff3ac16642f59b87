// receipt/routing.cc: counts of given picks and of their unions.
#include "receipt/routing.h"

#include <algorithm>

#include "plan/batch_state.h"
#include "plan/key_reads.h"
#include "plan/pick_unions.h"
#include "tessera/batch.h"

namespace tessera::receipt {

namespace {

Receipt::Routing routed(const RouteResult& r, bool given_picks) {
  const RouteCounts& c = r.counts;
  return {given_picks,
          r.settings,
          r.heads,
          c.picks,
          c.removed_invalid + c.removed_documents + c.removed_future,
          c.union_blocks,
          c.tile_rows,
          r.unions.widest,
          r.unions.capacity};
}

// Counts of picks that did not go through our router.
Receipt::Routing given(const Batch::State& batch) {
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

}  // namespace

std::optional<Receipt::Routing> routing_of(const Batch& of) {
  const Batch::State& batch = of.state();
  if (!batch.plan.meaning) return {};
  Receipt::Routing out =
      of.routing() ? routed(*of.routing(), batch.given_picks) : given(batch);
  const KeyReads reads = plan::key_reads(batch.sweep, batch.plan);
  out.needed_keys = reads.needed;
  out.read_keys = reads.read;
  return out;
}

std::optional<Receipt::Routing> routing_of(const Batch& batch,
                                           const AttentionCall& call) {
  auto out = routing_of(batch);
  if (!out) return out;
  const Plan& plan = batch.plan();
  const AttentionShape& s = call.shape;
  const int64_t key = (s.head_dim + s.v_head_dim) * byte_width(call.dtype);
  // K/V heads that one list serves; 1 if several lists read one K/V head.
  const int64_t heads = std::max<int64_t>(s.kv_heads / plan.heads, 1);
  out->extra_bytes = (out->read_keys - out->needed_keys) * heads * key;
  out->cache_bytes = plan.batch * plan.kv_len * s.kv_heads * key;
  return out;
}

}  // namespace tessera::receipt
