// receipt/routing.h: what a receipt says of picks.
#pragma once

#include "receipt/receipt.h"
#include "tessera/attention.h"
#include "tessera/batch.h"

namespace tessera::receipt {

// Nothing where no mask names picks. Of a batch that was routed, the router's
// counts; of picks that were given, those of the plan's tile rows and unions.
std::optional<Receipt::Routing> routing_of(const Batch& batch);
// The same with the bytes that a call with these arrays reads.
std::optional<Receipt::Routing> routing_of(const Batch& batch,
                                           const AttentionCall& call);

}  // namespace tessera::receipt
