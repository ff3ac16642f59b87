// lanes/sink_rows.cc: restricts a batch to the first keys with the mask
// language's own sink(n).
#include "lanes/sink_rows.h"

#include <utility>

#include "plan/batch_state.h"

namespace tessera::lanes {

Result<OwnedBatch> first_keys_batch(const Batch& batch, int64_t first_keys,
                                    std::string_view where) {
  auto read = plan::read_batch(batch, where);
  if (!read) return read.error();
  Request request = batch.request();
  request.ceilings = {};
  for (Mask& mask : request.masks) {
    auto first = make_mask(std::move(mask.expr) & sink(first_keys));
    if (!first) return first.error();
    // Facts that the mask named as written stay required.
    first->names = mask.names;
    mask = std::move(*first);
  }
  return OwnedBatch::copy(std::move(request), batch.facts());
}

}  // namespace tessera::lanes
