// lanes/mosaic/token_ids.h: the ids of one batch row's queries and keys, equal
// where a pair may be legal.
#pragma once

#include <cstdint>
#include <span>

#include "lanes/mosaic/rule.h"
#include "mask/bind.h"

namespace tessera::mosaic {

// The row, without ids where they veto nothing for all heads: a negative id
// vetoes for heads whose mask names ids, and those alone.
mask::BoundRow veto_row(const Request& request, const mask::Bound& bound,
                        int64_t batch_row);

// The id that decides what a key may share: its document, its segment, or 0; -1
// where a veto holds. It fills `of_key`, for each key one, and reads that and
// the row as long as it lives.
class KeyIds {
 public:
  KeyIds(const mask::Bound& bound, const mask::BoundRow& row, const Rule& rule,
         std::span<int32_t> of_key);

  std::span<const int32_t> keys() const { return of_key_; }
  // Of queries from that one on, whose positions need not be keys'.
  void queries(int64_t first, std::span<int32_t> out) const;

 private:
  const mask::BoundRow& row_;
  bool documents_;
  std::span<const int32_t> of_key_;
};

}  // namespace tessera::mosaic
