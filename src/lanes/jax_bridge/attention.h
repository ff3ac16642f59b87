// lanes/jax_bridge/attention.h: an artifact that declares attention, as a
// request with its arrays, which the reference can judge.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/bridge.h"
#include "tessera/plan.h"

namespace tessera::bridge {

// Fails unless there are as many arrays as the spec has.
Result<void> check_counts(const BridgeSpec& spec, size_t inputs,
                          size_t outputs);

// Checks the declaration against the arrays: mask, roles, dtypes and shapes.
Result<void> check_attention(const BridgeSpec& spec);

struct DeclaredAttention {
  Request request;
  Facts facts;
  AttentionShape shape;
  ForwardTensors tensors;
};

// The attention that a spec declares, with views of the arrays, which must be
// in the spec's order.
Result<DeclaredAttention> declared_attention(
    const BridgeSpec& spec, std::span<const void* const> inputs,
    std::span<void* const> outputs);

// The ids of one name for queries, [batch, q_len]: those of the keys at the
// queries' positions, and -1 where there is no key.
std::vector<int32_t> ids_of_queries(const Request& request, const Facts& facts,
                                    Ints ids_of_keys);

// Checks that inputs with ids of queries equal ids_of_queries().
Result<void> check_query_ids(const BridgeSpec& spec,
                             std::span<const void* const> inputs,
                             const DeclaredAttention& call);

}  // namespace tessera::bridge
