// lanes/mosaic/token_ids.h: the ids of one batch row's queries and keys, equal
// where a pair may be legal.
#pragma once

#include <cstdint>
#include <span>

#include "lanes/mosaic/rule.h"
#include "mask/bind.h"

namespace tessera::mosaic {

// The batch row, without ids unless they veto for all heads: a negative id
// vetoes only for heads whose mask names ids.
mask::BoundRow veto_row(const Request& request, const mask::Bound& bound,
                        int64_t batch_row);

// The id of each key: its document, its segment, or 0; -1 where a veto holds.
// The constructor fills `of_key`, one id per key. The object refers to `of_key`
// and `row`, which must outlive it.
class KeyIds {
 public:
  KeyIds(const mask::Bound& bound, const mask::BoundRow& row, const Rule& rule,
         std::span<int32_t> of_key);

  std::span<const int32_t> keys() const { return of_key_; }
  // Writes the ids of the queries from `first` on. Their positions need not be
  // positions of keys.
  void queries(int64_t first, std::span<int32_t> out) const;

 private:
  const mask::BoundRow& row_;
  bool documents_;
  std::span<const int32_t> of_key_;
};

}  // namespace tessera::mosaic
