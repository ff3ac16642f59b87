// lanes/jax_bridge/roles.h: what an array of an artifact that is attention may
// be, by the words of the file of shapes.
#pragma once

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

// A fact, and the role of the array that holds it.
struct FactRole {
  std::string role;
  std::optional<Ints>* fact = nullptr;
};
// Those of these facts.
std::vector<FactRole> fact_roles(Facts& facts);

// Whether an array of the spec is among its outputs.
bool is_output(const BridgeSpec& spec, const BridgeArray& array);

}  // namespace tessera::bridge
