// tessera/facts.h: facts, the data that changes with each batch. Facts holds
// views: the caller keeps the arrays alive. OwnedFacts owns its arrays. An
// absent fact and a fact full of zeros are different things.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/mask.h"
#include "tessera/result.h"

namespace tessera {

using Ints = std::span<const int32_t>;

// What attention does with picks. `exact`: each query attends to its own picks.
// `tile_union`: every query of a tile row attends to the union of the picks of
// all queries of that row.
enum class RouteMeaning : uint8_t { exact, tile_union };
std::string_view to_string(RouteMeaning meaning);  // "exact", "union"
Result<RouteMeaning> parse_route_meaning(std::string_view text);

// The block numbers (key / n, for blocks of n keys) that each query may attend
// to; -1 is an unused slot.
struct Picks {
  Ints blocks;        // [batch, heads, q_len, k]
  int64_t heads = 1;  // 1, the number of KV heads, or that of query heads
  int64_t k = 0;      // slots of a query
  // With `tile_union` the blocks are the union already: all queries of a tile
  // row have equal picks. A tile row is `query_tile` queries; 0: as many as the
  // plan's tile has.
  RouteMeaning meaning = RouteMeaning::exact;
  int64_t query_tile = 0;
};

struct Facts {
  std::optional<Ints> doc_ids;             // [batch, kv_len]; negative: padding
  std::optional<Ints> q_doc_ids;           // [batch, q_len]
  std::optional<Ints> valid_token_counts;  // [batch]
  std::optional<Ints> valid_slot_counts;   // [batch]; see base_block_tokens
  int64_t base_block_tokens = 0;           // keys of a slot
  std::optional<Ints> prefix_lengths;      // [batch]
  std::optional<Ints> q_offsets;           // [batch]; absent: kv_len - q_len
  std::optional<Picks> picks;
  // [batch, kv_len] each. The subtree of a token is [enter, leave). Tokens are
  // in depth-first order, so enter increases strictly. Tokens at or after the
  // valid count are not read.
  std::optional<Ints> tree_enter;
  std::optional<Ints> tree_leave;
  // [batch, kv_len] each, for same(a), same(b), ... A token with a negative id
  // is in no group. A query has the id of the key at its position.
  std::array<std::optional<Ints>, kSameNames> same_ids;
};

// Facts that own their arrays.
struct OwnedFacts {
  std::optional<std::vector<int32_t>> doc_ids;
  std::optional<std::vector<int32_t>> q_doc_ids;
  std::optional<std::vector<int32_t>> valid_token_counts;
  std::optional<std::vector<int32_t>> valid_slot_counts;
  int64_t base_block_tokens = 0;
  std::optional<std::vector<int32_t>> prefix_lengths;
  std::optional<std::vector<int32_t>> q_offsets;
  std::optional<std::vector<int32_t>> picks;
  int64_t picks_heads = 1;
  int64_t picks_k = 0;
  RouteMeaning picks_meaning = RouteMeaning::exact;
  int64_t picks_query_tile = 0;
  std::optional<std::vector<int32_t>> tree_enter;
  std::optional<std::vector<int32_t>> tree_leave;
  std::array<std::optional<std::vector<int32_t>>, kSameNames> same_ids;

  Facts view() const;
  bool operator==(const OwnedFacts&) const = default;
};

OwnedFacts own_facts(const Facts& facts);

// Converts packed boundaries [0, a, b, ...] to document ids 0, 1, ... Keys
// after the last boundary are padding (-1).
Result<std::vector<int32_t>> ids_from_cu_seqlens(Ints cu_seqlens,
                                                 int64_t kv_len);

// Converts positions [batch, length] to document ids 0, 1, ... of each row. A
// document begins wherever a position is not the previous position plus 1, as
// in Hugging Face transformers.
Result<std::vector<int32_t>> ids_from_position_ids(Ints position_ids,
                                                   int64_t batch = 1);

// Converts document ids [batch, length] to segment ids: each run of equal ids
// gets its own number, 0, 1, ... in each row. A negative id (padding) gets -1.
Result<std::vector<int32_t>> segments_from_ids(Ints doc_ids, int64_t batch = 1);

// Sequences that share prefixes, packed into one row of tokens that holds each
// shared prefix once.
//
//   auto tree = pack_tree({{a, b, c}, {a, b, d}});  // a b c d: 2 tokens saved
//   facts.tree_enter = tree->enter;                 // for the mask `tree`

// Tokens are in depth-first order. The children of a token are in the order of
// their first occurrence in the sequences.
struct PackedTree {
  std::vector<int32_t> tokens;
  std::vector<int32_t> enter;  // the token's index
  std::vector<int32_t> leave;  // one past the last token of its subtree
  std::vector<int32_t> depth;  // the token's position in its sequences
  // Sequence s is the tokens path[i] for i in [path_start[s], path_start[s +
  // 1]).
  std::vector<int64_t> path_start;
  std::vector<int32_t> path;

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  int64_t sequences() const {
    return static_cast<int64_t>(path_start.size()) - 1;
  }
  int64_t tokens_saved() const {
    return static_cast<int64_t>(path.size()) - size();
  }
};

// Equal prefixes share their tokens, in any order of the sequences.
Result<PackedTree> pack_tree(std::span<const Ints> sequences);

}  // namespace tessera
