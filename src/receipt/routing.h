// receipt/routing.h: what a receipt says of picks that no router of its run
// made.
#pragma once

#include "receipt/receipt.h"
#include "tessera/batch.h"

namespace tessera {

// Nothing where no mask names picks. Their tile rows and unions are the
// plan's.
std::optional<Receipt::Routing> given_routing(const Batch::State& batch);

}  // namespace tessera
