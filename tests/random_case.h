// tests/random_case.h: seeded random requests with facts, and a shrinker that
// makes a failing one small enough to read.
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

// A request and its facts, owning everything; masks as they were written.
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

  // Views of this case: it must stay where it is while they live.
  Facts facts() const;
  // Everything but the masks.
  Request shape() const;
  // With the masks through make_mask.
  Result<Request> request() const;
};

// A small random expression of at most `depth` operators deep. blocks(n) and
// routed(., n) use `pick_block` alone; 0 leaves them out.
Expr random_expr(std::mt19937_64& random, int depth, int64_t pick_block);

RandomCase random_case(uint64_t seed);

// Keeps every rule a caller must keep: lengths of the arrays, counts and
// prefixes in range, an id for every query that needs one, heads that divide.
bool well_formed(const RandomCase& c);

// Flags and arrays to type again; ids as runs `id x length`.
std::string describe(const RandomCase& c);

// As written, with every operator in parentheses; no printer of src/ in it.
std::string spell(const Expr& e);

// The smallest case found, by greedy steps, that still fails: `fails` returns
// a message, or nothing where the case passes.
using Failing =
    std::function<std::optional<std::string>(const RandomCase& candidate)>;
RandomCase shrink(RandomCase c, const Failing& fails, int budget = 3000);

// TESSERA_SEED and TESSERA_CASES, or the given values.
uint64_t first_seed(uint64_t otherwise);
int64_t case_count(int64_t otherwise);
// The step through a fixed list that meets TESSERA_CASES=10% of it, odd so that
// lists within lists are met evenly; 1 where no share is asked for.
size_t case_stride();
// Where that step begins in a list of `of` cases: TESSERA_CASES_TURN, so that
// shares of successive numbers meet all. At least one is met of any list.
size_t first_case(size_t of = SIZE_MAX);
size_t case_turn();  // TESSERA_CASES_TURN, or 0
bool takes_case(size_t number, size_t of = SIZE_MAX);

}  // namespace tessera::testing
