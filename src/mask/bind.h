// mask/bind.h: validates a request and its facts, and reduces them to one
// BoundRow of plain numbers per batch row. Later code trusts the result.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "mask/tree.h"
#include "tessera/plan.h"

namespace tessera::mask {

// The position of a batch row's first query.
inline int64_t q_offset_of(const Request& r, const Facts& f, int64_t b) {
  return f.q_offsets ? (*f.q_offsets)[static_cast<size_t>(b)]
                     : r.kv_len - r.q_len;
}

struct BoundRow {
  int64_t q_offset = 0;
  int64_t valid = 0;  // keys [0, valid) are valid: min(count, kv_len)
  int64_t q_end = 0;  // queries from here on are vetoed by the count
  int64_t prefix = 0;
  const int32_t* ids = nullptr;    // kv_len, where the request names ids
  const int32_t* q_ids = nullptr;  // q_len, where given and named
  const int32_t* enter = nullptr;  // kv_len, where the request names a tree
  const int32_t* leave = nullptr;
  // kv_len each, where the request names same(a), same(b), ...
  std::array<const int32_t*, kSameNames> same{};
};

struct Bound {
  int64_t batch = 1;
  int64_t heads = 1;  // plan heads
  int64_t q_len = 0;
  int64_t kv_len = 0;
  Tile tile;
  std::vector<const Mask*> masks;  // per plan head; owned by the request
  std::vector<BoundRow> rows;
  std::vector<Tree> trees;         // per batch row, if the request names one
  const int32_t* picks = nullptr;  // [batch, pick_heads, q_len, picks_k]
  int64_t pick_heads = 1;
  int64_t picks_k = 0;
  std::optional<RouteMeaning> meaning;  // of the picks, if a mask names them
  std::vector<std::string> warnings;

  const int32_t* picks_of(int64_t batch_row, int64_t head, int64_t q) const {
    const int64_t pick_head = head * pick_heads / heads;
    return picks + ((batch_row * pick_heads + pick_head) * q_len + q) * picks_k;
  }
};

// The union of the names in all masks.
Names names_of(const Request& request);

// Checks sizes and masks, without facts.
Result<void> check_request(const Request& request);

Result<Bound> bind(const Request& request, const Facts& facts);

// Binds into `bound` and reuses its memory. On an error `bound` is unspecified.
Result<void> bind(const Request& request, const Facts& facts, Bound& bound);

}  // namespace tessera::mask
