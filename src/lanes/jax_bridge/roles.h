// lanes/jax_bridge/roles.h: what an array of an artifact that is attention may
// be, by the words of the file of shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/bridge.h"
#include "tessera/facts.h"

namespace tessera::bridge {

bool is_role(std::string_view role);
std::string role_words();  // all of them, for errors

inline constexpr std::string_view kTensorRoles[] = {
    "q", "k", "v", "out", "lse", "sink_logits"};
// Picks have sizes of their own: heads, and how many a query has.
inline constexpr std::string_view kPicksRole = "picks";

// A fact, and the role of the array that holds it.
struct FactRole {
  std::string role;
  std::optional<Ints>* fact = nullptr;
};
// Those of these facts, without picks.
std::vector<FactRole> fact_roles(Facts& facts);

// What is no fact but follows from one: the ids of a name that queries have.
std::string query_ids_role(int64_t name);  // "q_same_a"

// Whether an array of the spec is among its outputs.
bool is_output(const BridgeSpec& spec, const BridgeArray& array);

}  // namespace tessera::bridge
