// lanes/mosaic/token_ids.cc: makes ids; with segments an id is a run's number.
#include "lanes/mosaic/token_ids.h"

#include <algorithm>

#include "lanes/mosaic/shape.h"
#include "mask/runs.h"

namespace tessera::mosaic {

mask::BoundRow veto_row(const Request& request, const mask::Bound& bound,
                        int64_t batch_row) {
  mask::BoundRow row = bound.rows[static_cast<size_t>(batch_row)];
  const bool ids_veto = std::ranges::all_of(request.masks, [](const Mask& m) {
    return m.names.documents || m.names.segments;
  });
  if (!ids_veto) row.ids = row.q_ids = nullptr;
  return row;
}

KeyIds::KeyIds(const mask::Bound& bound, const mask::BoundRow& row,
               const Rule& rule, std::span<int32_t> of_key)
    : row_(row), documents_(rule.documents && !rule.segments), of_key_(of_key) {
  const int64_t valid = std::clamp<int64_t>(row.valid, 0, bound.kv_len);
  std::ranges::fill(of_key.subspan(static_cast<size_t>(valid)), kNoKey);
  int32_t* const out = of_key.data();
  if (!row.ids || !documents_) std::fill_n(out, valid, 0);
  if (!row.ids) return;
  if (rule.segments && valid > 0) {
    mask::IdRuns runs;
    mask::find_runs(row.ids, valid, runs);
    for (int64_t r = 0; r < runs.count(); ++r) {
      const auto at = static_cast<size_t>(r);
      std::fill(out + runs.start[at], out + runs.start[at + 1],
                static_cast<int32_t>(r));
    }
  }
  const bool as_it_is = documents_;  // a local, so that the loop vectorizes
  for (int64_t k = 0; k < valid; ++k) {
    const int32_t id = row.ids[k];
    out[k] = id < 0 ? kNoKey : as_it_is ? id : out[k];
  }
}

void KeyIds::queries(int64_t first, std::span<int32_t> out) const {
  const auto n = static_cast<int64_t>(out.size());
  const int64_t live = std::clamp<int64_t>(row_.q_end - first, 0, n);
  std::ranges::fill(out.subspan(static_cast<size_t>(live)), kNoQuery);
  if (live == 0) return;  // q_offset may be out of range then
  const int32_t* ids = row_.q_ids;
  if (ids) {
    ids += first;
  } else if (row_.ids) {
    ids = of_key_.data() + first + row_.q_offset;
  }
  const bool as_it_is = documents_ || !row_.q_ids;
  for (int64_t q = 0; q < live; ++q) {
    const int32_t id = ids ? ids[q] : 0;
    out[static_cast<size_t>(q)] = id < 0 ? kNoQuery : as_it_is ? id : 0;
  }
}

}  // namespace tessera::mosaic
