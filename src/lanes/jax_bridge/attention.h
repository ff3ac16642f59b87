// lanes/jax_bridge/attention.h: an artifact that says it is attention, as a
// request with its arrays: what the reference judges.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/bridge.h"
#include "tessera/plan.h"

namespace tessera::bridge {

// Whether there are as many arrays as the spec has.
Result<void> check_counts(const BridgeSpec& spec, size_t inputs,
                          size_t outputs);

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

// The ids of one name that queries have, [batch, q_len]: those of the keys at
// their positions, and -1 where no key stands.
std::vector<int32_t> ids_of_queries(const Request& request, const Facts& facts,
                                    Ints ids_of_keys);

// Whether ids of queries that are inputs of their own are these.
Result<void> check_query_ids(const BridgeSpec& spec,
                             std::span<const void* const> inputs,
                             const DeclaredAttention& call);

}  // namespace tessera::bridge
