// tests/random_case.h: seeded random requests with facts, and a shrinker that
// makes a failing case small enough to read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tessera/facts.h"
#include "tessera/mask.h"
#include "tessera/plan.h"

namespace tessera::testing {

// A request and its facts, with their memory. Masks are as written.
struct RandomCase {
  uint64_t seed = 0;
  std::vector<Expr> masks;
  int64_t batch = 1;
  int64_t q_len = 1;
  int64_t kv_len = 1;
  Tile tile{8, 8};
  std::optional<std::vector<int32_t>> doc_ids;    // [batch, kv_len]
  std::optional<std::vector<int32_t>> q_doc_ids;  // [batch, q_len]
  std::optional<std::vector<int32_t>> valid_tokens;
  std::optional<std::vector<int32_t>> valid_slots;
  int64_t base_block_tokens = 0;
  std::optional<std::vector<int32_t>> prefix;
  std::optional<std::vector<int32_t>> q_offsets;
  std::optional<std::vector<int32_t>> picks;  // [batch, heads, q_len, k]
  int64_t pick_heads = 1;
  int64_t pick_k = 0;
  std::optional<std::vector<int32_t>> tree_enter;  // [batch, kv_len]
  std::optional<std::vector<int32_t>> tree_leave;
  std::optional<std::vector<int32_t>> same_a, same_b;  // [batch, kv_len]

  // Views of this case, which must not be moved while they live.
  Facts facts() const;
  // The request without its masks.
  Request shape() const;
  // The request, with masks made by make_mask.
  Result<Request> request() const;
};

// A small random expression, at most `depth` operators deep. blocks(n) and
// routed(., n) have n = `pick_block`; 0 leaves them out.
Expr random_expr(std::mt19937_64& random, int depth, int64_t pick_block);

RandomCase random_case(uint64_t seed);

// Whether the case keeps every rule of a caller: lengths of arrays, counts and
// prefixes in range, an id for every query that needs one, heads that divide.
bool well_formed(const RandomCase& c);

// Flags and arrays that reproduce the case; ids are runs `id x length`.
std::string describe(const RandomCase& c);

// The expression as written, with every operator in parentheses. It uses no
// printer of src/.
std::string spell(const Expr& e);

// The smallest case that greedy steps find and that still fails. `fails`
// returns a message, or nothing if the case passes.
using Failing =
    std::function<std::optional<std::string>(const RandomCase& candidate)>;
RandomCase shrink(RandomCase c, const Failing& fails, int budget = 3000);

// TESSERA_SEED and TESSERA_CASES, or `otherwise` if they are not set.
uint64_t first_seed(uint64_t otherwise);
int64_t case_count(int64_t otherwise);
// The step through a fixed list for a share such as TESSERA_CASES=10%. It is
// odd, so that nested lists are covered evenly; 1 if no share is set.
size_t case_stride();
// The first case of such a share in a list of `of` cases, by
// TESSERA_CASES_TURN: successive turns cover the list, with one case at least.
size_t first_case(size_t of = SIZE_MAX);
size_t case_turn();  // TESSERA_CASES_TURN, or 0
bool takes_case(size_t number, size_t of = SIZE_MAX);

}  // namespace tessera::testing
