// run/receipt_parts.h: a choice and a machine as a receipt tells them, and
// back.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/json_read.h"
#include "receipt/receipt.h"
#include "tessera/session.h"

namespace tessera {

Receipt::Choice tell(const Choice& choice);
Receipt::Machine tell(const Machine& machine);
// `number`: of the device among the plugin's.
Receipt::Plugin tell(const PluginPlace& place, int64_t number);

// A request's masks, lengths, tile and ceilings.
RequestText request_text(const Request& request);

// What was asked for, and planned.
struct AskedRun {
  const Batch& batch;
  const AttentionShape& shape;
  Dtype dtype;
  bool sink_logits = false;
  bool backward = false;
  const std::optional<LaneId>& lane;
  std::span<const LaneId> fallback;
};

// A receipt before anything ran. The caller adds who asked, the layout and the
// inputs.
Result<Receipt> tell_asked(const AskedRun& asked);

// What ran, by the lane's own counts, its family and its plugin.
void tell_run(const Prepared& prepared, Receipt& receipt);

// The machine of a receipt that read_receipt took.
Machine machine_of(const Json& receipt);
// Its gate row, as a table of one.
Result<GateTable> gate_of(const Json& receipt);

}  // namespace tessera
