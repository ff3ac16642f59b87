// bench/harness/cases.h: the cases that `tessera-bench attention` measures, and
// the goal of each row.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/attention.h"

namespace tessera::bench {

// bench/peers/attention_peer.py has the same cases under the same names.
struct AttentionCase {
  std::string_view name;
  std::string_view mask;
  bool documents = false;
  double softcap = 0;
  bool decode = false;  // one query, with lengths and heads of its own
};

std::span<const AttentionCase> attention_cases();
const AttentionCase* find_case(std::string_view name);
std::string case_names();  // "full, causal, ..."

struct CaseShape {
  int64_t q_len, kv_len, heads, kv_heads;
};
CaseShape shape_of(const AttentionCase& c, int64_t tokens);

enum class Direction : uint8_t { forward, backward };

// "forward" or "forward+backward": a backward row runs both passes.
std::string_view to_string(Direction d);

// The floating-point operations counted for one legal pair of one head.
double operations_per_pair(Direction d, int64_t head_dim);

struct Goal {
  double ratio = 0;  // to the best peer; 0: no such goal
  double share = 0;  // of the machine's peak; 0: no such goal
};
Goal goal_of(const AttentionCase& c, Dtype dtype, Direction d);

// Eight packed documents of unequal lengths (bench/packed_documents.py).
std::vector<int32_t> packed_ids(int64_t tokens);

}  // namespace tessera::bench
