// lanes/jax_bridge/attention.h: an artifact that says it is attention, as a
// request with its arrays: what the reference judges; and such a request's
// arrays as the artifact takes them.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "tessera/bridge.h"
#include "tessera/plan.h"

namespace tessera::bridge {

// Whether the declaration fits the arrays: its mask, roles, dtypes and shapes.
Result<void> check_attention(const BridgeSpec& spec);

struct DeclaredAttention {
  Request request;
  Facts facts;
  AttentionShape shape;
  ForwardTensors tensors;
};

// Of a spec that declares attention. Views of the arrays, which are in the
// spec's order.
Result<DeclaredAttention> declared_attention(
    const BridgeSpec& spec, std::span<const void* const> inputs,
    std::span<void* const> outputs);

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

  // The arrays of the facts in the spec's order, null elsewhere: to be held
  // while they are there.
  const std::vector<const void*>& facts() const { return facts_; }
  // A layer's arrays, in the artifact's layout; null for those of the facts.
  // Theirs until the next.
  Result<const ArrayPointers*> place(const ForwardTensors& tensors);

 private:
  BoundCall() = default;

  ForwardTensors declared_;  // layouts alone
  // Of q, k, v, out, lse and the sink logits, in this order.
  std::array<std::optional<size_t>, 6> places_;
  std::vector<const void*> facts_;
  ArrayPointers arrays_;
};

}  // namespace tessera::bridge
