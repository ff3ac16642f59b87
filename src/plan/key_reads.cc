// plan/key_reads.cc: counts needed keys by classifying tiles one key wide.
#include "plan/key_reads.h"

#include <algorithm>

namespace tessera::plan {

KeyReads key_reads(const mask::Sweep& sweep, const Plan& plan) {
  KeyReads out;
  for (const int64_t pairs : plan.legal_pairs) out.by_query += pairs;
  const int64_t tile = plan.tile.kv;
  for (const Entry e : plan.forward.entries) {
    out.read += std::min(tile, plan.kv_len - e.column() * tile);
  }
  const mask::Sweep keys = mask::with_tile(sweep, {plan.tile.q, 1});
  // The visit below never fails.
  [[maybe_unused]] const auto walked = keys.each_list(
      [&](mask::Classifier& list, int64_t, int64_t) -> Result<void> {
        for (int64_t r = 0; r < plan.forward.rows; ++r) {
          for (const mask::Span& s : list.tile_row(r)) {
            out.needed += s.end - s.begin;
          }
        }
        return {};
      });
  return out;
}

}  // namespace tessera::plan
