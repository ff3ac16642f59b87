// lanes/jax_bridge/bound_call.h: maps the arrays of a batch to the inputs and
// outputs of an artifact that declares attention.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/bridge.h"
#include "tessera/plan.h"

namespace tessera::bridge {

// Pointers for a spec's inputs and outputs, in its order; null for inputs that
// the program does not take.
struct ArrayPointers {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

// A batch that is checked against the artifact's declaration once; each layer
// then only supplies its array pointers.
class BoundCall {
 public:
  // Fails unless mask, sizes, scale, softcap and facts are the artifact's.
  static Result<BoundCall> bind(const BridgeSpec& spec, const Request& request,
                                const Facts& facts,
                                const AttentionShape& shape);

  // The arrays of the facts and of query ids, in the spec's order; null for all
  // other inputs. Send them while the facts still exist.
  const std::vector<const void*>& facts() const { return facts_; }
  // A layer's arrays, in the artifact's layout; null for those of the facts.
  // Valid until the next call.
  Result<const ArrayPointers*> place(const ForwardTensors& tensors);

 private:
  BoundCall() = default;
  Result<void> check_tensors_shared(const ForwardTensors& tensors) const;

  ForwardTensors declared_;  // only the layouts are used
  // Indices of q, k, v, out, lse and the sink logits in the spec.
  std::array<std::optional<size_t>, 6> places_;
  std::vector<const void*> facts_;
  std::vector<std::vector<int32_t>> query_ids_;  // facts_ points into them
  ArrayPointers arrays_;
};

}  // namespace tessera::bridge
