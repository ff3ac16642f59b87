// tests/random_topk.h: seeded random topk_idxs of every granularity and group
// form, and the legal pairs that they mean.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/facts.h"
#include "tessera/plan.h"

namespace tessera::testing {

struct RandomTopk {
  Request request;  // blocks(granularity), with or without causal
  bool causal = false;
  int64_t granularity = 1;
  int64_t heads = 4, kv_heads = 2;
  int64_t groups = 1;  // 1, or the number of K/V heads or of query heads
  int64_t k = 0;
  std::vector<int64_t> shape;  // one of the three forms
  std::vector<int32_t> values;
  std::vector<int32_t> counts;  // valid tokens of each batch row

  Facts facts() const;
  // Whether a pair is legal, straight from the definition.
  bool legal(int64_t b, int64_t group, int64_t q, int64_t key) const;
};

// Granularities 1, 4, 64 and 128 and the three group forms take turns. Some
// queries have no pick, unused slots are anywhere, ends ragged, tiles any size.
std::vector<RandomTopk> topk_cases(uint64_t seed, int64_t count);

}  // namespace tessera::testing
