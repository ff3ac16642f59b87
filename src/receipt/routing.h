// receipt/routing.h: what a receipt says of picks that no router of its run
// made.
#pragma once

#include "receipt/receipt.h"
#include "tessera/facts.h"

namespace tessera {

// Nothing where no mask names picks. Their tile rows and unions are the
// plan's. The plan must be that of the request and facts.
Result<std::optional<Receipt::Routing>> given_routing(const Request& request,
                                                      const Facts& facts,
                                                      const Plan& plan);

}  // namespace tessera
