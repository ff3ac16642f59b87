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
  // Mask, sizes, scale, softcap and facts must be the artifact's.
  static Result<BoundCall> bind(const BridgeSpec& spec, const Request& request,
                                const Facts& facts,
                                const AttentionShape& shape);

  // The arrays of the facts, and of what follows from them, in the spec's
  // order, null elsewhere: to be held while they are there.
  const std::vector<const void*>& facts() const { return facts_; }
  // A layer's arrays, in the artifact's layout; null for those of the facts.
  // Theirs until the next.
  Result<const ArrayPointers*> place(const ForwardTensors& tensors);

 private:
  BoundCall() = default;
  Result<void> check_tensors_shared(const ForwardTensors& tensors) const;

  ForwardTensors declared_;  // layouts alone
  // Of q, k, v, out, lse and the sink logits, in this order.
  std::array<std::optional<size_t>, 6> places_;
  std::vector<const void*> facts_;
  std::vector<std::vector<int32_t>> query_ids_;  // to which facts_ points
  ArrayPointers arrays_;
};

}  // namespace tessera::bridge
