// lanes/mosaic/token_ids.cc: key by key, with runs of ids where segments count.
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
               const Rule& rule)
    : row_(row),
      documents_(rule.documents && !rule.segments),
      of_key_(static_cast<size_t>(bound.kv_len), 0) {
  if (row.ids && rule.segments) {
    mask::IdRuns runs;
    mask::find_runs(row.ids, bound.kv_len, runs);
    for (int64_t r = 0; r < runs.count(); ++r) {
      const auto at = static_cast<size_t>(r);
      std::fill(of_key_.begin() + runs.start[at],
                of_key_.begin() + runs.start[at + 1], static_cast<int32_t>(r));
    }
  } else if (row.ids && documents_) {
    std::copy_n(row.ids, bound.kv_len, of_key_.begin());
  }
  const int64_t valid = std::clamp<int64_t>(row.valid, 0, bound.kv_len);
  std::fill(of_key_.begin() + valid, of_key_.end(), kNoKey);
  if (!row.ids) return;
  int32_t* const out = of_key_.data();
  for (int64_t k = 0; k < valid; ++k) out[k] = row.ids[k] < 0 ? kNoKey : out[k];
}

void KeyIds::queries(int64_t first, std::span<int32_t> out) const {
  const auto n = static_cast<int64_t>(out.size());
  const int64_t live = std::clamp<int64_t>(row_.q_end - first, 0, n);
  std::ranges::fill(out.subspan(static_cast<size_t>(live)), kNoQuery);
  if (live == 0) return;  // the offset may lie anywhere then
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
