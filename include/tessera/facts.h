// tessera/facts.h: what changes with each batch. Facts are views: they own
// nothing, and whoever fills them keeps the arrays alive. OwnedFacts own their
// arrays. An absent fact and a fact full of zeros are different things.
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

// What attention does with picks. `exact`: each query attends to its own.
// `tile_union`: every query of a tile row attends to the union of the row's.
enum class RouteMeaning : uint8_t { exact, tile_union };
std::string_view to_string(RouteMeaning meaning);  // "exact", "union"
Result<RouteMeaning> parse_route_meaning(std::string_view text);

// Block numbers (key / n) each query may attend to; -1 is an unused slot.
struct Picks {
  Ints blocks;        // [batch, heads, q_len, k]
  int64_t heads = 1;  // 1, the KV heads or the query heads
  int64_t k = 0;
  // With `tile_union` the blocks already are the union: all queries of a tile
  // row have equal picks. A tile row is `query_tile` queries; 0: the plan's
  // tile.
  RouteMeaning meaning = RouteMeaning::exact;
  int64_t query_tile = 0;
};

struct Facts {
  std::optional<Ints> doc_ids;             // [batch, kv_len]; negative: padding
  std::optional<Ints> q_doc_ids;           // [batch, q_len]
  std::optional<Ints> valid_token_counts;  // [batch]
  std::optional<Ints> valid_slot_counts;   // [batch], of base_block_tokens keys
  int64_t base_block_tokens = 0;
  std::optional<Ints> prefix_lengths;  // [batch]
  std::optional<Ints> q_offsets;       // [batch]; absent: kv_len - q_len
  std::optional<Picks> picks;
  // [batch, kv_len] each: a token's subtree is [enter, leave), and enter rises
  // along the tokens, depth-first. Tokens from the valid count on are not read.
  std::optional<Ints> tree_enter;
  std::optional<Ints> tree_leave;
  // [batch, kv_len] each, for same(a), same(b), ...; negative: of no group. A
  // query has the id of the key at its position.
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

// Packed boundaries [0, a, b, ...] become ids 0, 1, ...; keys past the last
// boundary are padding (-1).
Result<std::vector<int32_t>> ids_from_cu_seqlens(Ints cu_seqlens,
                                                 int64_t kv_len);

// Positions [batch, length] become ids: a new document wherever a position is
// not the one before it plus 1, as transformers reads them. A row begins at 0.
Result<std::vector<int32_t>> ids_from_position_ids(Ints position_ids,
                                                   int64_t batch = 1);

// Document ids [batch, length] become segment ids: each run of one id is a
// number of its own, 0, 1, ... in each row. Padding, any negative id, is -1.
Result<std::vector<int32_t>> segments_from_ids(Ints doc_ids, int64_t batch = 1);

// Sequences that share prefixes, as one row of tokens in which each prefix
// stands once.
//
//   auto tree = pack_tree({{a, b, c}, {a, b, d}});  // a b c d: 2 tokens saved
//   facts.tree_enter = tree->enter;                 // for the mask `tree`

// Tokens are in depth-first order; children of a token come in the order in
// which they first occur in the sequences.
struct PackedTree {
  std::vector<int32_t> tokens;
  std::vector<int32_t> enter;  // the token's own number
  std::vector<int32_t> leave;  // one past the last token below it
  std::vector<int32_t> depth;  // tokens above it: its position in a sequence
  // Sequence s is the tokens path[path_start[s]] to path[path_start[s + 1]].
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

// Equal prefixes share their tokens, whatever the order of the sequences.
Result<PackedTree> pack_tree(std::span<const Ints> sequences);

}  // namespace tessera
