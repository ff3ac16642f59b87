// tessera/facts.h: what changes with each batch. Facts are views: they own
// nothing, and whoever fills them keeps the arrays alive. An absent fact and a
// fact full of zeros are different things.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tessera/result.h"

namespace tessera {

using Ints = std::span<const int32_t>;

// Block numbers (key / n) each query may attend to; -1 is an unused slot.
struct Picks {
  Ints blocks;        // [batch, heads, q_len, k]
  int64_t heads = 1;  // 1, the KV heads or the query heads
  int64_t k = 0;
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
};

// Packed boundaries [0, a, b, ...] become ids 0, 1, ...; keys past the last
// boundary are padding (-1).
Result<std::vector<int32_t>> ids_from_cu_seqlens(Ints cu_seqlens,
                                                 int64_t kv_len);

}  // namespace tessera
