// lanes/jax_bridge/bound_call.h: a batch's arrays as an artifact that is
// attention takes them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/bridge.h"
#include "tessera/plan.h"

namespace tessera::bridge {

// Of a spec's inputs and outputs, in its order; null for inputs that the
// program does not take.
struct ArrayPointers {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

// A batch that means what the artifact declares, bound to it once: what is left
// of a layer is where its arrays lie.
class BoundCall {
 public:
  // Mask, sizes, scale, softcap and facts must be the artifact's. The arrays of
  // the facts must stay: each run reads them.
  static Result<BoundCall> bind(const BridgeSpec& spec, const Request& request,
                                const Facts& facts,
                                const AttentionShape& shape);

  // With a layer's arrays, in the artifact's layout; theirs until the next.
  Result<const ArrayPointers*> place(const ForwardTensors& tensors);

 private:
  BoundCall() = default;

  ForwardTensors declared_;  // layouts alone
  // Of q, k, v, out, lse and the sink logits, in this order.
  std::array<std::optional<size_t>, 6> places_;
  ArrayPointers arrays_;
  std::vector<std::vector<int32_t>> query_ids_;  // to which it points
};

}  // namespace tessera::bridge
