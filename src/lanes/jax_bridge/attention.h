// lanes/jax_bridge/attention.h: an artifact that says it is attention, as a
// request with its arrays: what the reference judges.
#pragma once

#include <span>

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

}  // namespace tessera::bridge
