// run/receipt_parts.h: parts of a receipt from what dispatch and lanes know.
#pragma once

#include <optional>
#include <span>

#include "receipt/receipt.h"
#include "tessera/session.h"

namespace tessera::run {

receipt::Receipt::Choice receipt_choice(const Choice& choice);
receipt::Receipt::Machine receipt_machine(const Machine& machine);
Machine machine_of(const receipt::Receipt& receipt);
// `number` is the index of the device in the plugin.
receipt::Receipt::Plugin receipt_plugin(const PluginPlace& place,
                                        int64_t number);

// What was asked for, and its plan.
struct AskedRun {
  const Batch& batch;
  const AttentionShape& shape;
  Dtype dtype;
  bool sink_logits = false;
  bool backward = false;
  const std::optional<LaneId>& lane;
  std::span<const LaneId> fallback;
};

// A receipt with the fields that are known before the run. The caller adds
// Lane::source, the layout and the inputs.
Result<receipt::Receipt> start_receipt(const AskedRun& asked);

// Adds what ran: the lane with its family, its plugin and its own counts.
void add_what_ran(const Prepared& prepared, receipt::Receipt& receipt);

}  // namespace tessera::run
