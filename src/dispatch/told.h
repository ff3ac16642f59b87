// dispatch/told.h: a choice and a machine as a receipt tells them, and back.
#pragma once

#include <optional>
#include <string>

#include "base/json_read.h"
#include "dispatch/fallback.h"
#include "receipt/receipt.h"
#include "tessera/dispatch.h"

namespace tessera {

Receipt::Choice tell(const Choice& choice);
Receipt::Machine tell(const Machine& machine);

// What ran, by the lane's own counts, its family and its plugin.
void tell_run(const Executed& executed, const LaneOptions& options,
              Receipt& receipt);

// The machine of a receipt that read_receipt took.
Machine machine_of(const Json& receipt);
// Its gate row, as a table of one.
Result<GateTable> gate_of(const Json& receipt);

}  // namespace tessera
