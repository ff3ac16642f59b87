// tests/attention_choices.h: a list of attention calls that covers every pair
// of choices of a call: masks, sizes, tiles, heads, dtypes, layouts.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/attention_case.h"

namespace tessera::testing {

inline constexpr double kCaps[] = {0, 15, 30, 50};
inline constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::bf16, Dtype::f16};

std::vector<AttentionCase> attention_choices(uint64_t seed);

// A call with a mask that needs no facts, in f32.
AttentionCase plain_attention(const char* mask, int64_t q_len, int64_t kv_len,
                              int64_t dim = 32);

}  // namespace tessera::testing
