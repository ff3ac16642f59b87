// lanes/jax_bridge/roles.h: the roles of arrays in an artifact that declares
// attention, by their names in the file of shapes.
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
// Picks have their own sizes: heads, and picks per query.
inline constexpr std::string_view kPicksRole = "picks";

// A fact, and the role of the array that holds it.
struct FactRole {
  std::string role;
  std::optional<Ints>* fact = nullptr;
};
// The roles of all facts but picks, pointing into `facts`.
std::vector<FactRole> fact_roles(Facts& facts);

// The role of the ids that queries have for a name. These follow from a fact.
std::string query_ids_role(int64_t name);  // "q_same_a"

// Whether an array of the spec is among its outputs.
bool is_output(const BridgeSpec& spec, const BridgeArray& array);

}  // namespace tessera::bridge
