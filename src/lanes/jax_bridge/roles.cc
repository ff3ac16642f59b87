// lanes/jax_bridge/roles.cc: the roles, in the order in which errors list them.
#include "lanes/jax_bridge/roles.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "mask/canonical.h"

namespace tessera::bridge {
namespace {

// All roles but the ids of names (same_a, q_same_a, ...).
constexpr std::string_view kRoles[] = {"q",
                                       "k",
                                       "v",
                                       "out",
                                       "lse",
                                       "sink_logits",
                                       "doc_ids",
                                       "q_doc_ids",
                                       "valid_token_counts",
                                       "q_offsets",
                                       "prefix_lengths",
                                       "tree_enter",
                                       "tree_leave",
                                       kPicksRole};

}  // namespace

bool is_role(std::string_view role) {
  if (std::ranges::find(kRoles, role) != std::end(kRoles)) return true;
  for (int64_t i = 0; i < kSameNames; ++i) {
    if (role == mask::same_fact(i) || role == query_ids_role(i)) return true;
  }
  return false;
}

std::string role_words() {
  return fmt::format("{}, {} to {}, {} to {}", fmt::join(kRoles, ", "),
                     mask::same_fact(0), mask::same_fact(kSameNames - 1),
                     query_ids_role(0), query_ids_role(kSameNames - 1));
}

std::vector<FactRole> fact_roles(Facts& facts) {
  std::vector<FactRole> out = {
      {"doc_ids", &facts.doc_ids},
      {"q_doc_ids", &facts.q_doc_ids},
      {"valid_token_counts", &facts.valid_token_counts},
      {"prefix_lengths", &facts.prefix_lengths},
      {"q_offsets", &facts.q_offsets},
      {"tree_enter", &facts.tree_enter},
      {"tree_leave", &facts.tree_leave}};
  out.reserve(out.size() + facts.same_ids.size());
  for (int64_t i = 0; i < kSameNames; ++i) {
    out.push_back(
        {mask::same_fact(i), &facts.same_ids[static_cast<size_t>(i)]});
  }
  return out;
}

std::string query_ids_role(int64_t name) {
  return "q_" + mask::same_fact(name);
}

bool is_output(const BridgeSpec& spec, const BridgeArray& array) {
  return &array >= spec.outputs.data() &&
         &array < spec.outputs.data() + spec.outputs.size();
}

}  // namespace tessera::bridge
