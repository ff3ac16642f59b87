// lanes/jax_bridge/attention.h: an artifact that says it is attention, as a
// request with its arrays: what the reference judges; and such a request's
// arrays as the artifact takes them.
#pragma once

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

// The arrays of a call that means what the artifact declares: its mask, sizes,
// scale, softcap, facts and layout. Anything else is an error.
Result<ArrayPointers> bind_call(const BridgeSpec& spec, const Request& request,
                                const Facts& facts, const AttentionShape& shape,
                                const ForwardTensors& tensors);

}  // namespace tessera::bridge
