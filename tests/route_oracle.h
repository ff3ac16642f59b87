// tests/route_oracle.h: a second router, in plain loops from the definitions,
// and random cases for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/route.h"

namespace tessera::testing {

// A request, its facts and arrays, with their memory.
struct RouteCase {
  uint64_t seed = 0;
  int64_t batch = 1, heads = 1, kv_heads = 1, q_len = 1, kv_len = 1, dim = 1;
  bool documents = false, segments = false;
  std::optional<std::vector<int32_t>> doc_ids, q_doc_ids, valid, q_offsets;
  std::vector<float> q, k;  // [batch, heads, tokens, dim]
  RouteSettings settings;

  Request request() const;
  Facts facts() const;
  RouteInputs inputs() const;
  int64_t pick_heads() const;
  std::string describe() const;
};

RouteCase random_route_case(uint64_t seed);

// [batch, pick heads, q_len, top], legal, ascending, -1 last.
std::vector<int32_t> oracle_picks(const RouteCase& c);

// Whether the block has a key that the query may see.
bool oracle_pick_legal(const RouteCase& c, int64_t b, int64_t query,
                       int64_t block);

}  // namespace tessera::testing
