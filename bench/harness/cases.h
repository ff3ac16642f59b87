// bench/harness/cases.h: what `tessera-bench attention` measures, and what each
// row should reach.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/attention.h"

namespace tessera::bench {

// bench/peers/attention_peer.py knows the same cases by the same names.
struct AttentionCase {
  std::string_view name;
  std::string_view mask;
  bool documents = false;
  double softcap = 0;
  bool decode = false;  // one query, its own lengths and heads
};

std::span<const AttentionCase> attention_cases();
const AttentionCase* find_case(std::string_view name);
std::string case_names();  // "full, causal, ..."

struct CaseShape {
  int64_t q_len, kv_len, heads, kv_heads;
};
CaseShape shape_of(const AttentionCase& c, int64_t tokens);

enum class Direction : uint8_t { forward, backward };

// "forward", "forward+backward": a backward row is both passes.
std::string_view to_string(Direction d);

// Floating-point operations that count, of one legal pair of one head.
double operations_per_pair(Direction d, int64_t head_dim);

struct Goal {
  double ratio = 0;  // to the best peer; 0: none
  double share = 0;  // of the machine's peak; 0: none
};
Goal goal_of(const AttentionCase& c, Dtype dtype, Direction d);

// Eight packed documents of unequal lengths (bench/packed_documents.py).
std::vector<int32_t> packed_ids(int64_t tokens);

}  // namespace tessera::bench
