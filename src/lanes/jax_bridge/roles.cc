// lanes/jax_bridge/roles.cc: the roles, in the order in which errors tell them.
#include "lanes/jax_bridge/roles.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

namespace tessera::bridge {
namespace {

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
                                       "prefix_lengths"};

}  // namespace

bool is_role(std::string_view role) {
  return std::ranges::find(kRoles, role) != std::end(kRoles);
}

std::string role_words() { return fmt::format("{}", fmt::join(kRoles, ", ")); }

std::vector<FactRole> fact_roles(Facts& facts) {
  return {{"doc_ids", &facts.doc_ids},
          {"q_doc_ids", &facts.q_doc_ids},
          {"valid_token_counts", &facts.valid_token_counts},
          {"prefix_lengths", &facts.prefix_lengths},
          {"q_offsets", &facts.q_offsets}};
}

bool is_output(const BridgeSpec& spec, const BridgeArray& array) {
  return &array >= spec.outputs.data() &&
         &array < spec.outputs.data() + spec.outputs.size();
}

}  // namespace tessera::bridge
