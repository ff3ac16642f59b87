// run/receipt_parts.h: what dispatch and lanes know, as receipts hold it.
#pragma once

#include <optional>
#include <span>

#include "receipt/receipt.h"
#include "tessera/session.h"

namespace tessera::run {

receipt::Receipt::Choice receipt_choice(const Choice& choice);
receipt::Receipt::Machine receipt_machine(const Machine& machine);
Machine machine_of(const receipt::Receipt& receipt);
// `number`: of the device among the plugin's.
receipt::Receipt::Plugin receipt_plugin(const PluginPlace& place,
                                        int64_t number);

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
Result<receipt::Receipt> start_receipt(const AskedRun& asked);

// What ran, by the lane's own counts, its family and its plugin.
void add_what_ran(const Prepared& prepared, receipt::Receipt& receipt);

}  // namespace tessera::run
