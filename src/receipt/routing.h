// receipt/routing.h: what a receipt says of picks.
#pragma once

#include "receipt/receipt.h"
#include "tessera/attention.h"
#include "tessera/batch.h"

namespace tessera::receipt {

// Nothing if no mask names picks. A batch that was routed has the router's
// counts; given picks are counted by the plan's tile rows and unions.
std::optional<Receipt::Routing> routing_of(const Batch& batch);
// The same, with the bytes of K and V that the call reads.
std::optional<Receipt::Routing> routing_of(const Batch& batch,
                                           const AttentionCall& call);

}  // namespace tessera::receipt
