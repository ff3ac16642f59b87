// plan/owned_facts.cc: facts that own their arrays.
#include <algorithm>

#include "tessera/facts.h"

namespace tessera {
namespace {

std::optional<Ints> view_of(const std::optional<std::vector<int32_t>>& owned) {
  if (!owned) return {};
  return Ints(*owned);
}

std::optional<std::vector<int32_t>> copy_of(const std::optional<Ints>& view) {
  if (!view) return {};
  return std::vector<int32_t>(view->begin(), view->end());
}

}  // namespace

Facts OwnedFacts::view() const {
  Facts f;
  f.doc_ids = view_of(doc_ids);
  f.q_doc_ids = view_of(q_doc_ids);
  f.valid_token_counts = view_of(valid_token_counts);
  f.valid_slot_counts = view_of(valid_slot_counts);
  f.base_block_tokens = base_block_tokens;
  f.prefix_lengths = view_of(prefix_lengths);
  f.q_offsets = view_of(q_offsets);
  f.tree_enter = view_of(tree_enter);
  f.tree_leave = view_of(tree_leave);
  std::ranges::transform(same_ids, f.same_ids.begin(), view_of);
  if (picks) {
    f.picks = Picks{Ints(*picks), picks_heads, picks_k, picks_meaning,
                    picks_query_tile};
  }
  return f;
}

OwnedFacts own_facts(const Facts& facts) {
  OwnedFacts f;
  f.doc_ids = copy_of(facts.doc_ids);
  f.q_doc_ids = copy_of(facts.q_doc_ids);
  f.valid_token_counts = copy_of(facts.valid_token_counts);
  f.valid_slot_counts = copy_of(facts.valid_slot_counts);
  f.base_block_tokens = facts.base_block_tokens;
  f.prefix_lengths = copy_of(facts.prefix_lengths);
  f.q_offsets = copy_of(facts.q_offsets);
  f.tree_enter = copy_of(facts.tree_enter);
  f.tree_leave = copy_of(facts.tree_leave);
  std::ranges::transform(facts.same_ids, f.same_ids.begin(), copy_of);
  if (facts.picks) {
    f.picks = copy_of(facts.picks->blocks);
    f.picks_heads = facts.picks->heads;
    f.picks_k = facts.picks->k;
    f.picks_meaning = facts.picks->meaning;
    f.picks_query_tile = facts.picks->query_tile;
  }
  return f;
}

}  // namespace tessera
